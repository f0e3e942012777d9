package kube

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ErrSkip is returned by a mutate function that finds nothing to write. Update then sends nothing
// and returns nil.
var ErrSkip = errors.New("nothing to write")

// ErrReplaced means that the object was deleted and another of the same name stands in its place.
var ErrReplaced = errors.New("object was replaced by another of the same name")

// conflictBackoff spreads writers that keep meeting on one object; its ten steps take about ten
// seconds together.
func conflictBackoff() wait.Backoff {
	return wait.Backoff{Duration: 10 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 10}
}

// Update changes an object as a compare-and-swap: it reads the object through r, which must not be
// a cache, calls mutate on what it read and sends the difference as a JSON merge patch guarded by
// the resourceVersion. On a conflict it reads and mutates again; mutate must therefore decide from
// the object it is given (the expected phase, the claim) and must be free of side effects.
//
// obj names the object (and with a UID set, which one: ErrReplaced otherwise) and holds the newest
// known state afterwards: as written, or after ErrSkip and errors of mutate as read. Errors of
// mutate are returned as they are; a missing object satisfies apierrors.IsNotFound. Conflicts are
// given up after about ten seconds.
func Update[T client.Object](ctx context.Context, r client.Reader, w client.Client, obj T, mutate func(T) error) error {
	key, uid := client.ObjectKeyFromObject(obj), obj.GetUID()
	var conflict error
	err := wait.ExponentialBackoffWithContext(ctx, conflictBackoff(), func(ctx context.Context) (bool, error) {
		fresh := newLike(obj)
		if err := r.Get(ctx, key, fresh); err != nil {
			return false, fmt.Errorf("read %T %s: %w", obj, key, err)
		}
		if uid != "" && fresh.GetUID() != uid {
			return false, fmt.Errorf("%T %s: %w", obj, key, ErrReplaced)
		}
		uid = fresh.GetUID()
		err := writeMutated(ctx, w, obj, fresh, mutate)
		if apierrors.IsConflict(err) {
			conflict = err
			return false, nil
		}
		return err == nil, err
	})
	switch {
	case errors.Is(err, ErrSkip):
		return nil
	case conflict != nil && wait.Interrupted(err) && ctx.Err() == nil:
		return fmt.Errorf("update %T %s: %w", obj, key, conflict)
	default:
		return err
	}
}

// writeMutated mutates a freshly read object and patches it; obj holds the outcome.
func writeMutated[T client.Object](ctx context.Context, w client.Client, obj, fresh T, mutate func(T) error) error {
	setShallow(obj, fresh)
	changed := cloneObject(fresh)
	if err := mutate(changed); err != nil {
		return err
	}
	if equality.Semantic.DeepEqual(fresh, changed) {
		return nil
	}
	patch := client.MergeFromWithOptions(fresh, client.MergeFromWithOptimisticLock{})
	if err := w.Patch(ctx, changed, patch); err != nil {
		return fmt.Errorf("patch %T %s: %w", obj, client.ObjectKeyFromObject(obj), err)
	}
	setShallow(obj, changed)
	return nil
}

// cloneObject returns a deep copy of the object with its own type.
func cloneObject[T client.Object](obj T) T {
	out, ok := obj.DeepCopyObject().(T)
	if !ok { // a type whose DeepCopyObject returns another type breaks runtime.Object's contract
		out = newLike(obj)
		setShallow(out, obj)
	}
	return out
}

// newLike returns an empty object of obj's type: a decoder would otherwise merge into what is
// there. Unstructured objects keep their kind.
func newLike[T client.Object](obj T) T {
	value := reflect.ValueOf(obj)
	out, ok := reflect.New(value.Type().Elem()).Interface().(T)
	if !ok {
		return obj
	}
	out.GetObjectKind().SetGroupVersionKind(obj.GetObjectKind().GroupVersionKind())
	return out
}

// setShallow makes obj a shallow copy of from.
func setShallow[T client.Object](obj, from T) {
	reflect.ValueOf(obj).Elem().Set(reflect.ValueOf(from).Elem())
}
