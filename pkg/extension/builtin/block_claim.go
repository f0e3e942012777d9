package builtin

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	filters "github.com/holdfast-io/holdfast/pkg/spec/selection"
)

// defaultVolumeGroup is the label that groups claims when the backup names none.
const defaultVolumeGroup = "velero.io/volume-group"

// blockClaim puts into the block of a bound PersistentVolumeClaim its volume, the Pods that mount
// it and the claims of its volume group, because hooks and snapshots have to see all of these at
// one time. Pods that the label selectors of the backup do not match stay out: the claim does not need
// them.
type blockClaim struct {
	named
	lister Lister

	mu     sync.Mutex
	users  map[string]*lazyValue[map[string][]action.Item]   // namespace → claim → Pods
	groups map[groupsOf]*lazyValue[map[string][]action.Item] // group → claims
}

// groupsOf is the label that names a volume group.
type groupsOf struct{ namespace, label string }

func newBlockClaim(lister Lister) *blockClaim {
	return &blockClaim{
		named: named{"velero.io/pvc", []string{"persistentvolumeclaims"}}, lister: lister,
		users:  map[string]*lazyValue[map[string][]action.Item]{},
		groups: map[groupsOf]*lazyValue[map[string][]action.Item]{},
	}
}

func (a *blockClaim) Related(ctx context.Context, o *action.Object, b *action.Backup) (_ []action.Item, err error) {
	defer a.guardPanic(related, &err)
	claim, err := o.Content()
	if err != nil {
		return nil, err
	}
	id, err := o.Identity()
	if err != nil {
		return nil, err
	}
	volume, err := boundVolume(claim)
	if err != nil {
		return nil, err
	}
	var items []action.Item
	if volume != "" {
		items = append(items, action.Item{GroupResource: volumes, Name: volume})
	}
	users, err := a.usersIn(id.Namespace, &b.Backup().Spec).getValue(ctx)
	if err != nil {
		return nil, err
	}
	items = append(items, users[id.Name]...)
	group, err := a.claimsOfGroup(ctx, id, claim, b.Backup().Spec.VolumeGroupSnapshotLabelKey)
	return append(items, group...), err
}

// claimsOfGroup returns the other claims of the claim's volume group.
func (a *blockClaim) claimsOfGroup(ctx context.Context, id action.Identity, claim object, label string) ([]action.Item, error) {
	if label == "" {
		label = defaultVolumeGroup
	}
	name, _, err := textAt(claim, "metadata", "labels", label)
	if err != nil || name == "" {
		return nil, err
	}
	groups, err := a.groupsIn(groupsOf{id.Namespace, label}).getValue(ctx)
	if err != nil {
		return nil, err
	}
	var others []action.Item
	for _, item := range groups[name] {
		if item.Name != id.Name {
			others = append(others, item)
		}
	}
	return others, nil
}

// usersIn is called with the spec of one backup only.
func (a *blockClaim) usersIn(namespace string, spec *velerov1.BackupSpec) *lazyValue[map[string][]action.Item] {
	return keepLazy(&a.mu, a.users, namespace, func(ctx context.Context) (map[string][]action.Item, error) {
		filter := filters.FromBackup(spec)
		selectors, err := filter.Selectors()
		if len(selectors) == 0 {
			selectors = []labels.Selector{labels.Everything()}
		}
		users := map[string][]action.Item{}
		for i := 0; err == nil && i < len(selectors); i++ {
			err = a.lister.Each(ctx, pods, namespace, selectors[i].String(), func(o *action.Object) error { return addUser(users, o) })
		}
		if err != nil {
			return nil, fmt.Errorf("read Pods of namespace %s: %w", namespace, err)
		}
		return users, nil
	})
}

// addUser notes a Pod under the claims that it mounts.
func addUser(users map[string][]action.Item, o *action.Object) error {
	pod, err := o.Content()
	if err != nil {
		return err
	}
	id, err := o.Identity()
	if err != nil {
		return err
	}
	item := action.Item{GroupResource: pods, Namespace: id.Namespace, Name: id.Name}
	mounted, err := podClaims(pod, id.Namespace)
	if err != nil {
		return fmt.Errorf("%s: %w", item, err)
	}
	for _, claim := range mounted {
		if !slices.Contains(users[claim.Name], item) { // several selectors may match it
			users[claim.Name] = append(users[claim.Name], item)
		}
	}
	return nil
}

func (a *blockClaim) groupsIn(of groupsOf) *lazyValue[map[string][]action.Item] {
	return keepLazy(&a.mu, a.groups, of, func(ctx context.Context) (map[string][]action.Item, error) {
		labelled, err := labels.NewRequirement(of.label, selection.Exists, nil)
		if err != nil {
			return nil, fmt.Errorf("spec.volumeGroupSnapshotLabelKey: %w", err)
		}
		groups := map[string][]action.Item{}
		err = a.lister.Each(ctx, claims, of.namespace, labelled.String(), func(o *action.Object) error {
			return addMember(groups, of.label, o)
		})
		if err != nil {
			return nil, fmt.Errorf("read PersistentVolumeClaims of namespace %s: %w", of.namespace, err)
		}
		return groups, nil
	})
}

// addMember notes a claim under its volume group.
func addMember(groups map[string][]action.Item, label string, o *action.Object) error {
	claim, err := o.Content()
	if err != nil {
		return err
	}
	id, err := o.Identity()
	if err != nil {
		return err
	}
	item := action.Item{GroupResource: claims, Namespace: id.Namespace, Name: id.Name}
	name, _, err := textAt(claim, "metadata", "labels", label)
	if err != nil {
		return fmt.Errorf("%s: %w", item, err)
	}
	if name != "" {
		groups[name] = append(groups[name], item)
	}
	return nil
}
