package volumes

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/object"
)

// clonePrefix is what Velero 1.18 lets the names begin with of volumes that cannot keep theirs.
const clonePrefix = "velero-clone-"

// chooseName gives the PersistentVolume another name if its claim goes to another namespace than the
// backup's while its own name is taken: the claim it was saved with may still exist beside the
// restored one. A successor uses the recorded name.
func (p *Provisioner) chooseName(ctx context.Context, o *object.Object) error {
	stored := p.Plan.Name(o.Node)
	if o.Renamed != "" {
		return nil
	}
	if name := p.Names.Volume(stored); name != stored {
		o.Rename(name, stored)
		return nil
	}
	namespace, _ := p.Volumes.Claim(stored)
	if namespace == p.Plan.MapNamespace(namespace) {
		return nil
	}
	// The same for every holder of the restore, so that one without records recognizes an existing
	// volume.
	clone := apply.Target{GVR: o.Target.GVR, Name: clonePrefix + uuid.NewSHA1(uuid.NameSpaceOID, []byte(string(p.UID)+"/"+stored)).String()}
	there, mine, err := p.Existing.Owned(ctx, o.Target)
	renamed := there && !mine
	if err == nil && !there && p.History.Resumed {
		there, mine, err = p.Existing.Owned(ctx, clone)
		renamed = there && mine
	}
	if renamed {
		o.Rename(clone.Name, stored)
	}
	return err
}

// recordVolume returns once it is durable what is known of a volume. From then on others know it by its
// name in the cluster.
func (p *Provisioner) recordVolume(ctx context.Context, o *object.Object, made *outcome.Volume) error {
	made.Name = o.Renamed
	stored := p.Plan.Name(o.Node)
	if made.Name != "" && made.Name != p.Names.Volume(stored) {
		p.Recorder.Info(o.Node, fmt.Sprintf("restored as %q", made.Name))
	}
	p.Recorder.Provision(o.Node, *made)
	if err := p.Recorder.Sync(ctx); err != nil {
		return err
	}
	if made.ID != "" {
		kept := *made
		p.mu.Lock()
		p.made[o.Node] = &kept
		p.mu.Unlock()
	}
	if made.Name != "" {
		p.Names.RenameVolume(stored, made.Name)
	}
	return nil
}
