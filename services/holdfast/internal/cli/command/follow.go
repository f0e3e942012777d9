package command

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// again is how long at most the object is not looked at: a watch can be silent because nothing
// happened or because it is broken.
const again = time.Second

// WaitUntil reads obj whenever it changed, and once a second besides, and calls seen after each read
// until seen returns true or an error, or ctx ends. An API server that cannot be reached is waited
// for; an object that is gone, or may not be read, ends the wait with that error. list is an empty
// list of obj's kind.
func WaitUntil(ctx context.Context, c client.WithWatch, clk clock.WithTicker, obj client.Object, list client.ObjectList, seen func() (bool, error)) error {
	ticker := clk.NewTicker(again)
	defer ticker.Stop()
	var w watch.Interface
	defer func() { stopWatch(w) }()
	for {
		if w == nil {
			w = startWatch(ctx, c, obj, list)
		}
		err := c.Get(ctx, client.ObjectKeyFromObject(obj), obj)
		switch {
		case err == nil:
			if done, err := seen(); done || err != nil {
				return err
			}
		case isFinal(err):
			return fmt.Errorf("wait for %s: %w", obj.GetName(), err)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C():
		case _, open := <-eventsOf(w):
			if !open {
				stopWatch(w)
				w = nil
				// Without this a server that closes every watch at once would be
				// asked in a tight loop.
				select {
				case <-ctx.Done():
					return context.Cause(ctx)
				case <-ticker.C():
				}
			}
		}
	}
}

// isFinal reports whether asking again cannot help.
func isFinal(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsBadRequest(err)
}

// startWatch watches one object; without a watch the ticker alone serves.
func startWatch(ctx context.Context, c client.WithWatch, obj client.Object, list client.ObjectList) watch.Interface {
	w, err := c.Watch(ctx, list, client.InNamespace(obj.GetNamespace()),
		client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("metadata.name", obj.GetName())})
	if err != nil {
		return nil
	}
	return w
}

func eventsOf(w watch.Interface) <-chan watch.Event {
	if w == nil {
		return nil
	}
	return w.ResultChan()
}

func stopWatch(w watch.Interface) {
	if w != nil {
		w.Stop()
	}
}
