package seed

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ownedOf is how many objects share an owner, and of how many: OwnedPercent is what that makes.
const (
	ownedOf   = 3
	familyOf  = 10
	ownedName = "bulk"
)

// OwnedPercent is the share of objects that have an owner after CreateOwned and Own.
const OwnedPercent = 100 * ownedOf / familyOf

// CreateOwned creates count ConfigMaps of size bytes and then patches owner references into
// OwnedPercent of them, each with a test of the resourceVersion: the requests that a restore of
// such objects makes, as fast as the API server takes them.
func CreateOwned(ctx context.Context, config *rest.Config, namespace string, count, size int) error {
	c, err := newClient(config)
	if err != nil {
		return err
	}
	options := BulkOptions{Namespace: namespace, Name: ownedName, Count: count, Size: size, Writers: 32}
	created := make([]metav1.ObjectMeta, count)
	err = runParallel(ctx, count, options.Writers, func(i int) error {
		object := options.bulkObject(i)
		if err := c.Create(ctx, object); err != nil {
			return fmt.Errorf("create %s/%s: %w", namespace, object.GetName(), err)
		}
		created[i] = metav1.ObjectMeta{Name: object.GetName(), UID: object.GetUID(), ResourceVersion: object.GetResourceVersion()}
		return nil
	})
	if err != nil {
		return err
	}
	return addOwnerReferences(ctx, c, namespace, created, options.Writers)
}

// addOwnerReferences patches references to the last object of each family into the first ones of it.
func addOwnerReferences(ctx context.Context, c client.Client, namespace string, objects []metav1.ObjectMeta, writers int) error {
	return runParallel(ctx, len(objects), writers, func(i int) error {
		owner := i/familyOf*familyOf + familyOf - 1
		if i%familyOf >= ownedOf || owner >= len(objects) {
			return nil
		}
		patch, err := json.Marshal([]map[string]any{
			{"op": "test", "path": "/metadata/resourceVersion", "value": objects[i].ResourceVersion},
			{"op": "add", "path": "/metadata/ownerReferences", "value": []metav1.OwnerReference{{
				APIVersion: "v1", Kind: "ConfigMap", Name: objects[owner].Name, UID: objects[owner].UID,
			}}},
		})
		if err != nil {
			return err
		}
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: objects[i].Name}}
		if err := c.Patch(ctx, object, client.RawPatch(types.JSONPatchType, patch)); err != nil {
			return fmt.Errorf("patch %s/%s: %w", namespace, objects[i].Name, err)
		}
		return nil
	})
}

// runParallel calls do for 0 to count-1 from some writers at once, until one fails.
func runParallel(ctx context.Context, count, writers int, do func(i int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	var mu sync.Mutex
	next := 0
	for range writers {
		group.Go(func() error {
			for ctx.Err() == nil {
				mu.Lock()
				i := next
				next++
				mu.Unlock()
				if i >= count {
					return nil
				}
				if err := do(i); err != nil {
					return err
				}
			}
			return ctx.Err()
		})
	}
	return group.Wait()
}
