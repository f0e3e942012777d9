package queue

import (
	"context"
	"maps"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// ownWrites is a client that lists jobs from a cache and is never older than its own writes: it
// remembers a job that it patches until the cache shows that write or a later one. Safe for
// concurrent use.
type ownWrites struct {
	client.Client
	cache client.Reader

	mu      sync.Mutex
	written map[types.UID]client.Object
}

func newOwnWrites(c client.Client, cache client.Reader) *ownWrites {
	return &ownWrites{Client: c, cache: cache, written: map[types.UID]client.Object{}}
}

// Patch implements client.Client.
func (w *ownWrites) Patch(ctx context.Context, obj client.Object, patch client.Patch, options ...client.PatchOption) error {
	if err := w.Client.Patch(ctx, obj, patch, options...); err != nil {
		return err
	}
	if written, ok := obj.DeepCopyObject().(client.Object); ok {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.written[obj.GetUID()] = written
	}
	return nil
}

// List lists Backups or Restores. It belongs to the passes.
func (w *ownWrites) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	w.mu.Lock()
	written := maps.Clone(w.written)
	w.mu.Unlock()
	if err := w.cache.List(ctx, list, options...); err != nil {
		return err
	}
	switch list := list.(type) {
	case *velerov1.BackupList:
		replaceOlder(w, list.Items, written)
	case *velerov1.RestoreList:
		replaceOlder(w, list.Items, written)
	}
	return nil
}

// replaceOlder puts what was written before the list in the place of what is older, and forgets the
// other writes of that kind. A job that was written and is not listed has ended or is gone: it was
// found in the cache.
func replaceOlder[T any, P interface {
	*T
	client.Object
}](w *ownWrites, items []T, written map[types.UID]client.Object) {
	newer := map[types.UID]bool{}
	for i := range items {
		listed := P(&items[i])
		if own, ok := written[listed.GetUID()].(P); ok && isOlder(listed, own) {
			items[i], newer[own.GetUID()] = *own, true
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for uid, own := range written {
		if _, ok := own.(P); ok && !newer[uid] && w.written[uid] == own {
			delete(w.written, uid)
		}
	}
}

// isOlder compares two states of an object.
func isOlder(a, b client.Object) bool {
	order, err := resourceversion.CompareResourceVersion(a.GetResourceVersion(), b.GetResourceVersion())
	return err == nil && order < 0
}
