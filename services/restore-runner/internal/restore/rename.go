package restore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/google/uuid"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/decoded"
)

// clonePrefix is what Velero 1.18 lets the names begin with of volumes that cannot keep theirs.
const clonePrefix = "velero-clone-"

// name gives the PersistentVolume another name if its claim goes to another namespace than the
// backup's while its own name is taken: the claim it was saved with may live on beside the restored
// one. Whoever takes the restore over uses the recorded name.
func (r *run) name(ctx context.Context, it *item) error {
	stored := r.Plan.Node(it.node).Name
	if it.renamed != "" {
		return nil
	}
	if name := r.volumeName(stored); name != stored {
		it.becomes(name, stored)
		return nil
	}
	namespace, _ := r.Volumes.Claim(stored)
	if namespace == r.Plan.MapNamespace(namespace) {
		return nil
	}
	// The same for every holder of the restore, so that one without records recognizes what is
	// there.
	clone := apply.Target{GVR: it.target.GVR, Name: clonePrefix + uuid.NewSHA1(uuid.NameSpaceOID, []byte(string(r.UID)+"/"+stored)).String()}
	there, mine, err := r.owned(ctx, it.target)
	renamed := there && !mine
	if err == nil && !there && r.History.Resumed {
		there, mine, err = r.owned(ctx, clone)
		renamed = there && mine
	}
	if renamed {
		it.becomes(clone.Name, stored)
	}
	return err
}

// owned reports whether an object is there, and whether this restore created it.
func (r *run) owned(ctx context.Context, t apply.Target) (there, mine bool, err error) {
	live, err := r.lookUp(ctx, t)
	if live == nil || err != nil {
		return false, false, err
	}
	return true, r.manager.Made(decoded.Object(live, "metadata")), nil
}

// recorded returns once it is durable what is known of a volume. From then on others know it by its
// name in the cluster.
func (r *run) recorded(ctx context.Context, it *item, made *outcome.Volume) error {
	made.Name = it.renamed
	stored := r.Plan.Node(it.node).Name
	if made.Name != "" && made.Name != r.volumeName(stored) {
		r.Recorder.Info(it.node, fmt.Sprintf("restored as %q", made.Name))
	}
	r.Recorder.Provision(it.node, *made)
	if err := r.Recorder.Sync(ctx); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if made.ID != "" {
		kept := *made
		r.made[it.node] = &kept
	}
	if made.Name != "" {
		r.names[stored] = made.Name
	}
	return nil
}

// followVolume makes a claim name its volume as that is called in the cluster. Volumes come before
// their claims, also where an action on the claim asks for the volume: only when the claim is about
// to be created is the name certain.
func (r *run) followVolume(it *item) {
	spec := decoded.Object(it.body, "spec")
	stored := decoded.Text(spec, "volumeName")
	if name := r.volumeName(stored); name != stored {
		spec = maps.Clone(spec) // actions may hold it still
		spec["volumeName"] = name
		it.body["spec"] = spec
	}
}

// volumeName returns what a volume of the backup is called in the cluster.
func (r *run) volumeName(stored string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return cmp.Or(r.names[stored], stored)
}

// becomes gives the object another name. Actions may hold parts of its body still.
func (it *item) becomes(name, stored string) {
	it.renamed, it.target.Name = name, name
	it.body = named(it.body, name)
	meta := it.metadata()
	annotations := maps.Clone(decoded.Object(meta, "annotations"))
	if annotations == nil {
		annotations = map[string]any{}
	}
	annotations[velerov1.AnnotationOriginalPVName] = stored
	meta["annotations"] = annotations
}

// named returns the object under another name. Only the object itself and its metadata are copied.
func named(body map[string]any, name string) map[string]any {
	body = maps.Clone(body)
	meta := maps.Clone(decoded.Object(body, "metadata"))
	if meta == nil {
		meta = map[string]any{}
	}
	meta["name"], body["metadata"] = name, meta
	return body
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
