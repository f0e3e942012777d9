package collect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/action"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/chain"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/known"
)

// errUnclear is what is known of a call that an earlier holder of the backup was
// about to make.
var errUnclear = errors.New("the runner ended around this call; it is not made again, since it may have begun an operation")

// maxOutcomeBytes bounds the answers in one record.
const maxOutcomeBytes = 16 << 20

// calls makes calls that may begin an operation, each once per backup whoever
// holds it: that one is made is durable before it, and how it ended is in the next
// record of any kind. A later holder takes the recorded answer. Safe for
// concurrent use.
type calls struct {
	mu sync.Mutex
	// before has the calls of earlier holders, and the key of the record that
	// tells how they ended; "" if none does.
	before map[callKey]string
	// ended are the outcomes that are in no durable record yet, after gone others.
	ended []checkpoint.Outcome
	gone  int
	next  *intents

	// writing is held by who writes a record of intents, which meanwhile gather
	// for the next one.
	writing sync.Mutex
}

type callKey struct {
	object known.Key
	action string
}

func callOf(c *checkpoint.Call) callKey { return callKey{keyOf(&c.Object), c.Action} }

// replay learns from a record of an earlier holder.
func (c *calls) replay(key string, rec *checkpoint.Record) {
	if c.before == nil && len(rec.Intents) > 0 {
		c.before = map[callKey]string{}
	}
	for i := range rec.Intents {
		c.before[callOf(&rec.Intents[i])] = ""
	}
	for i := range rec.Outcomes {
		if call := callOf(&rec.Outcomes[i].Call); rec.Outcomes[i].Unsent {
			delete(c.before, call)
		} else {
			c.before[call] = key
		}
	}
}

// Execute implements chain.Host.
func (t *turn) Execute(ctx context.Context, a action.BackupItem, o *action.Object, b *action.Backup) (action.BackupResult, error) {
	if _, begins := a.(action.BackupOperations); begins {
		return t.once(ctx, a, o, b)
	}
	return t.repeatable(ctx, a, o, b)
}

// once makes a call that may begin an operation, unless it was made before.
func (t *turn) once(ctx context.Context, a action.BackupItem, o *action.Object, b *action.Backup) (action.BackupResult, error) {
	s, c := t.subject, &t.run.calls
	call := checkpoint.Call{Action: a.Name(), Object: object(&s.Item)}
	if record, before := c.before[callOf(&call)]; before {
		return t.recall(ctx, record, &call, o)
	}
	if err := t.prepare(ctx, a); err != nil {
		return action.BackupResult{}, err
	}
	if err := t.run.intend(t.uploads, func(i *intents) { i.calls = append(i.calls, call) }); err != nil {
		return action.BackupResult{}, &fatalError{err}
	}
	result, err := t.execute(ctx, a, o, b)
	ending := ctx.Err() != nil || t.run.stopping()
	switch {
	case err != nil && ending && t.run.Actions.unsent(err):
		c.add(&checkpoint.Outcome{Call: call, Unsent: true})
		return result, &fatalError{ErrStopped} // the next holder makes it
	case err != nil && ctx.Err() != nil:
		return result, err // nobody knows
	}
	return result, c.end(&call, o, &result, err)
}

// prepare does what can be done before the call is announced: an announced call that
// is not made costs the object.
func (t *turn) prepare(ctx context.Context, a action.BackupItem) error {
	if p, ok := a.(action.Preparer); ok {
		if err := p.Prepare(ctx); err != nil && !t.run.stopping() {
			return err
		}
	}
	if t.run.stopping() {
		return &fatalError{ErrStopped}
	}
	return t.run.confirm(ctx)
}

// end keeps the outcome of a call for the next record, and returns its error.
func (c *calls) end(call *checkpoint.Call, given *action.Object, r *action.BackupResult, failure error) error {
	out := checkpoint.Outcome{Call: *call, Operation: r.OperationID}
	switch {
	case failure != nil:
		out.Error = failure.Error()
	case r.Object != nil && r.Object != given:
		raw, err := r.Object.JSON()
		if err != nil {
			failure = fmt.Errorf("action %s: Execute: %w", call.Action, err)
			out.Error = failure.Error()
		}
		out.Body = raw
	}
	if failure == nil {
		for _, item := range r.Additional {
			out.Additional = append(out.Additional, checkpoint.Item{Group: item.Group, Resource: item.Resource, Namespace: item.Namespace, Name: item.Name})
		}
	}
	c.add(&out)
	return failure
}

// add keeps an outcome for the next record.
func (c *calls) add(out *checkpoint.Outcome) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = append(c.ended, *out)
}

// outcomes returns what is to be in the next record. Records that are written at
// the same time may have the same ones.
func (c *calls) outcomes() (out []checkpoint.Outcome, upTo int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, size := 0, 0
	for n < len(c.ended) && (n == 0 || size+len(c.ended[n].Body) <= maxOutcomeBytes) {
		size += len(c.ended[n].Body)
		n++
	}
	return slices.Clone(c.ended[:n]), c.gone + n
}

// pending tells whether there are outcomes in no durable record.
func (c *calls) pending() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.ended) > 0
}

// recorded notes that outcomes are durable.
func (c *calls) recorded(upTo int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := upTo - c.gone; n > 0 {
		c.ended, c.gone = slices.Delete(c.ended, 0, n), upTo
	}
}

// recall returns what an earlier holder recorded of a call.
func (t *turn) recall(ctx context.Context, record string, call *checkpoint.Call, given *action.Object) (r action.BackupResult, err error) {
	s := t.subject
	unclear := fmt.Errorf("action %s: Execute of %s %s: %w", call.Action, s.kind().GroupKind(), objectKey(s.Namespace, s.Name), errUnclear)
	if record == "" {
		return r, unclear
	}
	err = unclear
	backup := t.run.Backup
	failed := checkpoint.Each(ctx, t.run.Store, backup.Name, string(backup.UID), []string{record}, func(_ string, rec *checkpoint.Record) error {
		for i := range rec.Outcomes {
			if rec.Outcomes[i].Call == *call {
				r, err = answered(&rec.Outcomes[i], given)
			}
		}
		return nil
	})
	if failed != nil {
		return r, &fatalError{fmt.Errorf("read how a call ended: %w", failed)}
	}
	return r, err
}

// answered is the answer of a recorded call.
func answered(o *checkpoint.Outcome, given *action.Object) (action.BackupResult, error) {
	if o.Error != "" {
		return action.BackupResult{OperationID: o.Operation}, errors.New(o.Error)
	}
	r := action.BackupResult{Object: given, OperationID: o.Operation}
	if o.Body != nil {
		r.Object = action.FromJSON(o.Body)
	}
	for _, i := range o.Additional {
		r.Additional = append(r.Additional, action.Item{GroupResource: schema.GroupResource{Group: i.Group, Resource: i.Resource}, Namespace: i.Namespace, Name: i.Name})
	}
	return r, nil
}

// repeats is how often a call is made again whose process died.
const repeats = 2

// repeatable makes a call that may be made again. One that may have failed because
// of another that its process was answering is, one such call at a time, so that it
// costs the object that is to blame, and others only where several are. Nobody
// waits for that but who repeats too.
func (t *turn) repeatable(ctx context.Context, a action.BackupItem, o *action.Object, b *action.Backup) (action.BackupResult, error) {
	r := t.run
	concurrent := r.BlockWorkers > 1 || len(r.bound.blocks) > 0
	result, err := t.execute(ctx, a, o, b)
	for range repeats {
		if err != nil && r.stopping() {
			return result, &fatalError{ErrStopped} // perhaps that is why, and the next holder calls again
		}
		if err == nil || ctx.Err() != nil || !concurrent || r.Actions.Collateral == nil || !r.Actions.Collateral(err) {
			return result, err
		}
		result, err = t.repeat(ctx, a, o, b)
	}
	return result, err
}

func (t *turn) repeat(ctx context.Context, a action.BackupItem, o *action.Object, b *action.Backup) (action.BackupResult, error) {
	select {
	case t.run.again <- struct{}{}:
	case <-ctx.Done():
		return action.BackupResult{}, context.Cause(ctx)
	}
	defer func() { <-t.run.again }()
	return t.execute(ctx, a, o, b)
}

// execute makes a call beside others.
func (t *turn) execute(ctx context.Context, a action.BackupItem, o *action.Object, b *action.Backup) (action.BackupResult, error) {
	if err := t.run.confirm(ctx); err != nil {
		return action.BackupResult{}, err
	}
	return chain.Execute(ctx, a, o, b)
}
