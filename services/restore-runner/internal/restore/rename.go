package restore

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/google/uuid"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/decoded"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/object"
)

// clonePrefix is what Velero 1.18 lets the names begin with of volumes that cannot keep theirs.
const clonePrefix = "velero-clone-"

// name gives the PersistentVolume another name if its claim goes to another namespace than the
// backup's while its own name is taken: the claim it was saved with may live on beside the restored
// one. Whoever takes the restore over uses the recorded name.
func (r *run) name(ctx context.Context, it *object.Object) error {
	stored := r.Plan.Node(it.Node).Name
	if it.Renamed != "" {
		return nil
	}
	if name := r.names.Volume(stored); name != stored {
		it.Rename(name, stored)
		return nil
	}
	namespace, _ := r.Volumes.Claim(stored)
	if namespace == r.Plan.MapNamespace(namespace) {
		return nil
	}
	// The same for every holder of the restore, so that one without records recognizes what is
	// there.
	clone := apply.Target{GVR: it.Target.GVR, Name: clonePrefix + uuid.NewSHA1(uuid.NameSpaceOID, []byte(string(r.UID)+"/"+stored)).String()}
	there, mine, err := r.existing.Owned(ctx, it.Target)
	renamed := there && !mine
	if err == nil && !there && r.History.Resumed {
		there, mine, err = r.existing.Owned(ctx, clone)
		renamed = there && mine
	}
	if renamed {
		it.Rename(clone.Name, stored)
	}
	return err
}

// recorded returns once it is durable what is known of a volume. From then on others know it by its
// name in the cluster.
func (r *run) recorded(ctx context.Context, it *object.Object, made *outcome.Volume) error {
	made.Name = it.Renamed
	stored := r.Plan.Node(it.Node).Name
	if made.Name != "" && made.Name != r.names.Volume(stored) {
		r.Recorder.Info(it.Node, fmt.Sprintf("restored as %q", made.Name))
	}
	r.Recorder.Provision(it.Node, *made)
	if err := r.Recorder.Sync(ctx); err != nil {
		return err
	}
	if made.ID != "" {
		kept := *made
		r.mu.Lock()
		r.made[it.Node] = &kept
		r.mu.Unlock()
	}
	if made.Name != "" {
		r.names.RenameVolume(stored, made.Name)
	}
	return nil
}

// followVolume makes a claim name its volume as that is called in the cluster. Volumes come before
// their claims, also where an action on the claim asks for the volume: only when the claim is about
// to be created is the name certain.
func (r *run) followVolume(it *object.Object) {
	spec := decoded.Object(it.Body, "spec")
	stored := decoded.Text(spec, "volumeName")
	if name := r.names.Volume(stored); name != stored {
		spec = maps.Clone(spec) // actions may hold it still
		spec["volumeName"] = name
		it.Body["spec"] = spec
	}
}

// nameOf returns the name of an object that a plugin made, which must have one.
func nameOf(o *action.Object) (string, error) {
	if o == nil {
		return "", errors.New("returned no object")
	}
	content, err := o.Content()
	if err != nil {
		return "", err
	}
	name := decoded.Text(decoded.Object(content, "metadata"), "name")
	if name == "" {
		return "", errors.New("metadata.name: missing")
	}
	return name, nil
}
