package restore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/holdfast-io/holdfast/pkg/action"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// clonePrefix is what Velero 1.18 lets the names begin with of volumes that cannot keep theirs.
const clonePrefix = "velero-clone-"

// name gives the PersistentVolume another name if its claim goes to another namespace than the backup's while its own name
// is taken: the claim it was saved with may live on beside the restored one. Whoever takes the restore over uses the
// recorded name.
func (r *run) name(ctx context.Context, it *item) error {
	stored := r.Plan.Node(it.node).Name
	if name := r.volumeName(stored); name != stored {
		it.becomes(name, stored)
		return nil
	}
	namespace, _ := r.Volumes.Claim(stored)
	if namespace == r.Plan.MapNamespace(namespace) {
		return nil
	}
	raw, err := r.client.Get(ctx, it.target)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for the object: %w", err)
	}
	var live map[string]any
	if err := utiljson.Unmarshal(raw, &live); err != nil {
		return fmt.Errorf("decode the existing object: %w", err)
	}
	if r.mine()(object(live, "metadata")) {
		return nil
	}
	r.rename(it, clonePrefix+string(uuid.NewUUID()))
	r.Recorder.Info(it.node, fmt.Sprintf("restored as %q: a PersistentVolume of its own name is in the cluster", it.renamed))
	return nil
}

// rename gives a volume, and with it its claim, another name.
func (r *run) rename(it *item, name string) {
	stored := r.Plan.Node(it.node).Name
	r.mu.Lock()
	r.names[stored] = name
	r.mu.Unlock()
	it.becomes(name, stored)
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
	name := text(object(content, "metadata"), "name")
	if name == "" {
		return "", errors.New("metadata.name: missing")
	}
	return name, nil
}

// followVolume makes a claim name its volume as that is called in the cluster. Volumes come before their claims, also where
// an action on the claim asks for the volume: only when the claim is about to be created is the name certain.
func (r *run) followVolume(it *item) {
	spec := object(it.body, "spec")
	stored := text(spec, "volumeName")
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
	it.body = maps.Clone(it.body)
	meta := maps.Clone(it.metadata())
	annotations := maps.Clone(object(meta, "annotations"))
	if annotations == nil {
		annotations = map[string]any{}
	}
	annotations[velerov1.AnnotationOriginalPVName] = stored
	meta["name"], meta["annotations"] = name, annotations
	it.body["metadata"] = meta
}
