package collect

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/pkg/part"
	"github.com/holdfast-io/holdfast/pkg/resource"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/chain"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/held"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/known"
)

// actor processes objects with the actions they match. Used by one goroutine.
type actor struct {
	*worker
	later []later // additional items that were put off
}

// member processes an object of a block, unless another is or was at it.
func (a *actor) member(ctx context.Context, m *member) error {
	was, at := a.run.bound.register.Begin(m.key, a.id, false)
	if !was.Waits(false) {
		a.join(m)
		return a.warn(&subject{Item: m.named, errors: m.errors})
	}
	if was == known.Waiting {
		it, err := a.take(at)
		if err != nil {
			return err
		}
		_, err = a.process(ctx, m.key, &subject{Item: it, errors: m.errors})
		return err
	}
	found, err := a.run.read(ctx, &m.res, m.item)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		a.run.bound.register.End(m.key, known.Failed)
		return a.fail(about(m.item.GroupResource, m.item.Namespace, m.item.Name, "an object of an item block could not be read: it is not backed up", err))
	}
	if fate := a.run.judge(found, false); fate != known.Unknown {
		a.run.bound.register.End(m.key, fate)
		if fate != known.Absent {
			return nil
		}
		a.run.Progress.noted(1, 0)
		e := about(m.item.GroupResource, m.item.Namespace, m.item.Name, "an action puts this object into an item block, and it does not exist", nil)
		e.Level = joblog.Warning
		return a.note(e)
	}
	found.errors = m.errors
	_, err = a.process(ctx, m.key, &found.subject)
	return err
}

// take reads an object that waited.
func (a *actor) take(at known.Place) (held.Item, error) {
	it, err := held.Read(a.run.held.path(at.File), int64(at.Offset))
	if err == nil {
		a.run.Progress.hold(-1)
	}
	return it, err
}

// join notes, with the block it is in, that an object which was processed aside
// has been asked for its block.
func (a *actor) join(m *member) {
	if !m.asked {
		return
	}
	a.run.bound.register.Join(m.key)
	o := object(&m.named)
	if i := slices.Index(a.record.Aside, o); i >= 0 {
		a.record.Aside = slices.Delete(a.record.Aside, i, i+1)
		return
	}
	a.record.Joined = append(a.record.Joined, o)
}

// waiting processes an additional item that Begin gave.
func (a *actor) waiting(ctx context.Context, x *extra) (known.Fate, error) {
	it, err := a.take(x.place)
	if err != nil {
		return known.Unknown, err
	}
	return a.process(ctx, x.key, &subject{Item: it, depth: x.depth + 1, aside: x.aside})
}

// subject is an object that is processed.
type subject struct {
	held.Item
	// extra objects are not of the backup's selection: something asked for them.
	extra bool
	// live objects were read outside the cut.
	live bool
	// aside objects may have a block, and are not processed with it.
	aside bool
	depth int // how many objects asked for one another before this one
	// warnings and errors are noted with the fate of the object, never without it:
	// a later holder would have them again.
	warnings []string
	errors   []error
}

// object names an object in a record.
func object(it *held.Item) checkpoint.Object {
	return checkpoint.Object{Group: it.Group, Kind: it.Kind, Namespace: it.Namespace, Name: it.Name}
}

func (s *subject) resource() schema.GroupResource {
	return schema.GroupResource{Group: s.Group, Resource: s.Resource}
}

func (s *subject) kind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: s.Group, Version: s.Version, Kind: s.Kind}
}

// turn is an object on its way through its actions, and the chain.Host for it.
type turn struct {
	*actor
	subject *subject
}

// fatalError ends the job, and is no matter of the object.
type fatalError struct{ err error }

func (e *fatalError) Error() string { return e.err.Error() }
func (e *fatalError) Unwrap() error { return e.err }

// process runs the actions of an object that Begin gave, and stores what they made
// of it. An error is one that ends the job.
func (a *actor) process(ctx context.Context, key known.Key, s *subject) (known.Fate, error) {
	fate, err := a.decide(ctx, s)
	if err == nil {
		err = a.drain()
	}
	if err != nil {
		return known.Unknown, err
	}
	if s.aside {
		a.record.Aside = append(a.record.Aside, object(&s.Item))
	}
	a.run.bound.register.End(key, fate)
	return fate, nil
}

func (a *actor) decide(ctx context.Context, s *subject) (known.Fate, error) {
	o, err := chain.Parse(s.kind(), s.Raw)
	if err != nil {
		return a.failed(s, "object cannot be read", err)
	}
	result := chain.Result{Object: o}
	if w := a.run.bound.wants(s.resource()); w != nil {
		result, err = w.chain.Run(ctx, o, &turn{actor: a, subject: s})
	}
	var fatal *fatalError
	switch {
	case ctx.Err() != nil:
		return known.Unknown, context.Cause(ctx)
	case errors.As(err, &fatal):
		return known.Unknown, fatal.err
	}
	if err := a.warn(s); err != nil {
		return known.Unknown, err
	}
	message := "the object is backed up, but an action did not come to its end"
	if err != nil || result.LeftOut != "" {
		message = "the object is not backed up, and an action did not come to its end"
	}
	for _, problem := range result.Problems {
		if err := a.fail(about(s.resource(), s.Namespace, s.Name, message, problem)); err != nil {
			return known.Unknown, err
		}
	}
	switch {
	case err != nil:
		return a.failed(s, "an action failed: the object is not backed up", err)
	case result.LeftOut != "":
		return known.LeftOut, a.leaveOut(s, result.LeftOut)
	}
	return a.store(s, &result)
}

// warn notes the warnings about an object.
func (a *actor) warn(s *subject) error {
	for _, message := range s.warnings {
		a.run.Progress.noted(1, 0)
		e := about(s.resource(), s.Namespace, s.Name, message, nil)
		e.Level = joblog.Warning
		if err := a.note(e); err != nil {
			return err
		}
	}
	for _, cause := range s.errors {
		if err := a.fail(about(s.resource(), s.Namespace, s.Name, "what belongs to the object's item block is unknown", cause)); err != nil {
			return err
		}
	}
	return nil
}

// store adds the object to the part.
func (a *actor) store(s *subject, r *chain.Result) (known.Fate, error) {
	open, err := a.part()
	if err != nil {
		return known.Unknown, err
	}
	o := &r.Object
	res, _ := a.run.Catalog.Lookup(s.resource())
	u := unit{res: resource.Resource{Kind: o.Kind, Name: s.Resource, Custom: res.Custom}}
	found, complete := u.references().Find(s.Namespace, o.Raw)
	err = open.Add(part.Item{
		GVK: o.Kind, Resource: s.Resource, Preferred: true, Meta: o.Meta, Raw: o.Raw, HasTypeMeta: true, Spaced: o.Spaced,
		Live: s.live, Cut: s.Cut, Actions: r.Applied, References: found,
	})
	if errors.Is(err, part.ErrInvalidItem) {
		return a.failed(s, "object cannot be stored", err)
	}
	if err != nil {
		return known.Unknown, fmt.Errorf("store %s: %w", objectKey(s.Namespace, s.Name), err)
	}
	a.run.Progress.acted()
	a.account(s)
	if !complete {
		e := about(s.resource(), s.Namespace, s.Name, shortenedMessage, nil)
		e.Level = joblog.Info
		if err := a.note(e); err != nil {
			return known.Unknown, err
		}
	}
	return known.Stored, a.remark(s.resource(), o)
}

// account tells what follows of an object that was stored: its namespace, and for
// one that was not listed its resource.
func (a *actor) account(s *subject) {
	var namespaces map[string]struct{}
	if s.Namespace != "" {
		namespaces = map[string]struct{}{s.Namespace: {}}
		a.within(namespaces)
	}
	if !s.extra {
		return
	}
	a.run.extras.Store(true)
	a.run.facts.add(s.resource(), namespaces)
	a.record.Resources = appendSorted(a.record.Resources, s.resource().String())
}

// remark notes what is to be said about a stored object.
func (a *actor) remark(gr schema.GroupResource, o *chain.Object) error {
	remarks, info := a.run.remarks(gr, o.Meta, o.Raw)
	if info != nil {
		a.record.Volumes = append(a.record.Volumes, *info)
		a.run.facts.bind(a.record.Volumes[len(a.record.Volumes)-1:])
	}
	for _, e := range remarks {
		if e.Level == joblog.Warning {
			a.run.Progress.noted(1, 0)
		} else {
			a.run.Progress.noted(0, 1)
		}
		if err := a.note(e); err != nil {
			return err
		}
	}
	return nil
}

// failed notes that the object is not in the backup, which is an error.
func (a *actor) failed(s *subject, message string, cause error) (known.Fate, error) {
	open, err := a.part()
	if err != nil {
		return known.Unknown, err
	}
	o, err := chain.Parse(s.kind(), s.Raw)
	if err == nil {
		err = open.Fail(part.Item{GVK: s.kind(), Resource: s.Resource, Preferred: true, Meta: o.Meta})
	}
	switch {
	case err == nil:
		a.run.Progress.acted()
	case errors.Is(err, part.ErrInvalidItem), o.Meta == nil:
		// The resource list cannot name it.
	default:
		return known.Unknown, fmt.Errorf("note a failure: %w", err)
	}
	return known.Failed, a.fail(about(s.resource(), s.Namespace, s.Name, message, cause))
}

// leaveOut notes that an action keeps the object out of the backup.
func (a *actor) leaveOut(s *subject, by string) error {
	a.record.LeftOut = append(a.record.LeftOut, object(&s.Item))
	e := about(s.resource(), s.Namespace, s.Name, "left out by action "+by, nil)
	e.Level = joblog.Info
	return a.note(e)
}
