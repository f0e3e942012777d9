package claim

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// guardPeriod is how often a guarded object is read, unless the timeout requires more. Safety does
// not rest on it: every write of a holder is fenced.
const guardPeriod = 2 * time.Second

// Guard returns a context that ends with cause ErrLost once epoch, holder or UID of the object
// differ from what obj carries, or the object vanished. API errors and unrelated edits do not end
// it. After a pause of the process the object is read at once. As long as the claim holds each state
// that is read is shown to seen, which may be nil: one after another, at most two seconds apart while
// the API server answers. The cancel function stops the watching and must be called.
func (i *Instance) Guard(ctx context.Context, obj client.Object, seen func(client.Object)) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	g, err := i.guardOf(obj)
	if err != nil {
		cancel(err)
		return ctx, func() { cancel(context.Canceled) }
	}
	g.seen = seen
	i.adjustGuards(1)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer i.adjustGuards(-1)
		g.runGuard(ctx, cancel)
	}()
	return ctx, func() { cancel(context.Canceled); <-ended }
}

type claimGuard struct {
	*Instance
	key  client.ObjectKey
	uid  types.UID
	mine Claim
	kind reflect.Type
	seen func(client.Object) // may be nil
}

func newGuard(i *Instance, obj client.Object, mine Claim) *claimGuard {
	return &claimGuard{Instance: i, key: client.ObjectKeyFromObject(obj), uid: obj.GetUID(), mine: mine, kind: reflect.TypeOf(obj).Elem()}
}

func (g *claimGuard) runGuard(ctx context.Context, cancel context.CancelCauseFunc) {
	period := min(guardPeriod, g.cfg.beatInterval())
	waiting := g.cfg.Clock.Now()
	ticker := g.cfg.Clock.NewTicker(period)
	defer ticker.Stop()
	for ; ; waiting = g.cfg.Clock.Now() {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		// A tick missed by a paused process is delivered as soon as it continues: the job's first step is
		// this read.
		if late := g.cfg.Clock.Since(waiting) - period; late > period {
			g.cfg.Log.Warn("Process was paused; checking its claim", "object", g.key.String(), "late", late)
		}
		if err := g.readClaim(ctx); errors.Is(err, ErrLost) {
			cancel(err)
			return
		}
	}
}

// readClaim reads the object: an error wrapping ErrLost when the claim is lost, any other when the
// server did not answer within the time of a beat or two.
func (g *claimGuard) readClaim(ctx context.Context) error {
	obj, ok := reflect.New(g.kind).Interface().(client.Object)
	if !ok {
		return nil // cannot be: kind is that of a client.Object
	}
	ctx, cancel := context.WithTimeout(ctx, g.cfg.Timeout/gapsPerTimeout)
	defer cancel()
	switch err := g.cfg.Reader.Get(ctx, g.key, obj); {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%w: %s is gone", ErrLost, g.key)
	case err != nil:
		return fmt.Errorf("read %s: %w", g.key, err)
	case obj.GetUID() != g.uid:
		return fmt.Errorf("%w: another object is named %s", ErrLost, g.key)
	}
	if err := Check(obj, g.mine); err != nil {
		return err
	}
	if g.seen != nil {
		g.seen(obj)
	}
	return nil
}
