package claim

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// guardPeriod is how often a guarded object is read, unless the timeout asks
// for more. Safety does not rest on it: every write of a holder is fenced.
const guardPeriod = 2 * time.Second

// Guard returns a context that ends with cause ErrLost once epoch, holder or
// UID of the object differ from what obj carries, or the object vanished.
// API errors and unrelated edits do not end it. The cancel function stops the
// watching and must be called.
func (i *Instance) Guard(ctx context.Context, obj client.Object) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	mine, found, err := Parse(obj)
	if err == nil && !found {
		err = errors.New("the object carries none")
	}
	if err != nil {
		cancel(fmt.Errorf("%w: %w", ErrLost, err))
		return ctx, func() { cancel(context.Canceled) }
	}
	g := &guard{Instance: i, key: client.ObjectKeyFromObject(obj), uid: string(obj.GetUID()), mine: mine, kind: reflect.TypeOf(obj).Elem()}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		g.run(ctx, cancel)
	}()
	return ctx, func() { cancel(context.Canceled); <-ended }
}

type guard struct {
	*Instance
	key  client.ObjectKey
	uid  string
	mine Claim
	kind reflect.Type
}

func (g *guard) run(ctx context.Context, cancel context.CancelCauseFunc) {
	ticker := g.cfg.Clock.NewTicker(min(guardPeriod, g.cfg.Timeout/beatsPerTimeout))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		if err := g.look(ctx); err != nil {
			cancel(err)
			return
		}
	}
}

// look reads the object; only what it says, never a failing call, ends the claim.
func (g *guard) look(ctx context.Context) error {
	obj, ok := reflect.New(g.kind).Interface().(client.Object)
	if !ok {
		return nil // cannot be: kind is that of a client.Object
	}
	switch err := g.cfg.Reader.Get(ctx, g.key, obj); {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%w: %s is gone", ErrLost, g.key)
	case err != nil:
		return nil
	case string(obj.GetUID()) != g.uid:
		return fmt.Errorf("%w: another object is named %s", ErrLost, g.key)
	}
	return Check(obj, g.mine)
}
