package acting

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/kube/resource"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/actionset"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/plan"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/podhook"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/itemset"
)

// Block are objects that one worker processes, one after the other.
type Block struct {
	Members []Member
	// Hooks are the Pods whose hooks run around the block.
	Hooks []*podhook.Pod
}

// Member is an object of a block. What no list of the backup selected is read again when it is
// processed, and not kept.
type Member struct {
	Key itemset.Key
	// Resource and Item name it if it is a member because an action named it.
	Resource resource.Resource
	Item     action.Item
	// Named is the object without its body, once it was looked at.
	Named itemset.SpooledItem
	// Asked is true once its actions were asked what they relate to it, and Errors are what they
	// could not answer.
	Asked  bool
	Errors []error
}

// ErrUndeclared means that an action named an object of a resource that it was not declared to
// name.
var ErrUndeclared = errors.New("the action was not expected to ask for this resource")

// Arranger forms blocks. Objects that go through no action are stored already, at the revision of
// the rest, and need no block. Used by one goroutine.
type Arranger struct {
	Finder  *plan.Finder
	Actions *actionset.Bound
	Items   *itemset.Set
	Spools  *itemset.SpoolFiles
	// Joined are the objects whose blocks an earlier holder processed.
	Joined map[itemset.Key]struct{}
	// Hooks runs the hooks of Pods; nil where none has any. Owed are the Pods whose hooks an
	// earlier holder began, until the first Arrange.
	Hooks *podhook.Runner
	Owed  []checkpoint.HookedPod
	// Resumed is true where objects were spooled before this holder.
	Resumed bool
	Stop    plan.StopSignal

	reserved reservedMembers
}

// errArranged ends the reading of a spool when the run is stopped.
var errArranged = errors.New("no more blocks")

// Arrange sends the blocks to the queue, in the order in which objects were spooled.
func (a *Arranger) Arrange(ctx context.Context, queue chan<- Block) error {
	a.Items.StartRound()
	if a.Hooks != nil {
		if err := a.sendHooked(ctx, queue); err != nil {
			return err
		}
	}
	return a.eachWaiting(func(key itemset.Key, _ *itemset.SpooledItem) error { return a.sendBlockOf(ctx, key, queue) })
}

// eachWaiting calls fn with the objects that wait, in the order in which they were spooled, until the run
// is stopped.
func (a *Arranger) eachWaiting(fn func(key itemset.Key, it *itemset.SpooledItem) error) error {
	for number, path := range a.Spools.All() {
		if path == "" {
			continue // a page was rolled back, and nothing else was in it
		}
		err := itemset.EachSpooled(path, func(offset int64, it *itemset.SpooledItem) error {
			if a.Stop.Requested() {
				return errArranged
			}
			key := itemset.KeyOf(schema.GroupKind{Group: it.Group, Kind: it.Kind}, it.Namespace, it.Name)
			if !a.Items.PendingAt(key, itemset.Place{File: uint32(number), Offset: uint32(offset)}) { //nolint:gosec // parts are smaller
				return nil
			}
			return fn(key, it)
		})
		if errors.Is(err, errArranged) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// sendBlockOf sends the block of an object to the queue, unless it is in one.
func (a *Arranger) sendBlockOf(ctx context.Context, key itemset.Key, queue chan<- Block) error {
	b := Block{Members: []Member{{Key: key}}}
	if a.Reserved(key) {
		return nil
	}
	if a.Actions.FormBlocks() {
		if !a.Items.Enter(key) {
			return nil
		}
		if err := a.completeBlock(ctx, &b); err != nil {
			return err
		}
	}
	return sendBlock(ctx, queue, b)
}

func sendBlock(ctx context.Context, queue chan<- Block, b Block) error {
	select {
	case queue <- b:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// completeBlock adds what the members relate to, and what that relates to.
func (a *Arranger) completeBlock(ctx context.Context, b *Block) error {
	for i := 0; i < len(b.Members); i++ {
		if !a.mayRelate(&b.Members[i]) {
			continue
		}
		it, found, err := a.readMember(ctx, &b.Members[i])
		if err != nil {
			return err
		}
		if !found {
			continue
		}
		items, err := a.relatedItems(ctx, &b.Members[i], &it)
		it.Raw = nil
		b.Members[i].Named = it
		if err != nil {
			return err
		}
		b.Members[i].Asked = true
		for _, item := range items {
			if m, ok := a.admitRelated(&b.Members[i], item); ok {
				b.Members = append(b.Members, m)
			}
		}
	}
	return nil
}

// mayRelate reports whether actions may relate something to a member, without decoding it.
func (a *Arranger) mayRelate(m *Member) bool {
	if _, done := a.Joined[m.Key]; done {
		return false
	}
	return m.Item.Name == "" || a.Actions.FormBlocksOf(m.Item.GroupResource)
}

// readMember returns the object of a member: as it was listed, or read by its name.
func (a *Arranger) readMember(ctx context.Context, m *Member) (itemset.SpooledItem, bool, error) {
	if at, ok := a.Items.Place(m.Key); ok {
		it, err := itemset.ReadSpooled(a.Spools.Path(at.File), int64(at.Offset))
		return it, err == nil, err
	}
	if m.Item.Name == "" {
		return itemset.SpooledItem{}, false, nil // it was processed since
	}
	found, err := a.Finder.Read(ctx, &m.Resource, m.Item)
	switch {
	case ctx.Err() != nil:
		return itemset.SpooledItem{}, false, context.Cause(ctx)
	case err != nil:
		return itemset.SpooledItem{}, false, nil // processing it fails with that
	case !found.Exists:
		return itemset.SpooledItem{}, false, nil
	}
	return found.Item, a.Finder.FilterResult(found, false) == itemset.Unknown, nil
}

// admitRelated makes a related item a member of the block, unless it is in one, was processed in one, or
// the filters do not let it in. One that was processed detached is a member for what its own
// actions relate to it.
func (a *Arranger) admitRelated(by *Member, item action.Item) (Member, bool) {
	res, item, err := a.Finder.Locate(item)
	if err == nil && !a.Actions.Counts(item.GroupResource) {
		err = ErrUndeclared
	}
	if err != nil {
		by.Errors = append(by.Errors, fmt.Errorf("related item %s: %w", item, err))
		return Member{}, false
	}
	m := Member{Key: itemset.KeyOf(res.Kind.GroupKind(), item.Namespace, item.Name), Resource: res, Item: item}
	switch a.Items.Result(m.Key) {
	case itemset.Waiting:
	case itemset.Unknown:
		if !a.Finder.Admits(&res, item.Namespace) {
			return Member{}, false
		}
	default:
		if !a.Items.Detached(m.Key) {
			return Member{}, false
		}
	}
	return m, a.Items.Enter(m.Key)
}
