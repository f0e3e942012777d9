package collect

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/pkg/rawlist"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
)

// Reasons for another revision than the backup's, as the manifest gives them.
const (
	reasonCompacted = "compacted"
	reasonForeign   = "the server counts revisions of its own"
	reasonApart     = "its storage counts revisions of its own"
)

// maxExpiries bounds how often in a row a list may expire before its first page.
const maxExpiries = 5

// unit collects one unit, or what an earlier holder left of it. What is wrong
// with the kind is noted; an error is one that ends the job.
func (w *worker) unit(ctx context.Context, u unit) error {
	s := w.sink(&u)
	var token string
	if w.run.past.isDone(u.id()) {
		return nil
	}
	if at, ok := w.run.past.units[u.id()]; ok {
		s.resume(at)
		token = at.Continue
	}
	err := w.list(ctx, s, token)
	var broken *rawlist.SinkError
	switch {
	case err == nil:
		failpoint.Hit("backup-runner/unit-done")
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(err, &broken):
		return err
	}
	w.run.Progress.page(u.id(), 0, 0)
	message := "objects of this kind could not be listed: they are not backed up"
	if s.begun {
		message = fmt.Sprintf("objects of this kind could not be listed beyond %q: the rest of them is not backed up", s.after)
	}
	s.covered(checkpoint.Range{Revision: s.revision, After: s.after, Last: s.after, Done: true})
	return w.fail(joblog.Entry{Message: message, Err: err.Error(), Scoped: true, Namespace: u.namespace, Resource: s.gr.String()})
}

// sink returns what takes the unit's objects.
func (w *worker) sink(u *unit) *sink {
	b := &w.run.bound
	s := &sink{w: w, u: u, gr: u.res.GroupResource(), references: u.references(), wants: b.wants(u.res.GroupResource())}
	s.registered = b.any() && (s.wants != nil || u.role != plain || b.counts(s.gr))
	return s
}

// finish notes what the unit brought.
func (s *sink) finish() error {
	if s.u.role == namespaceObjects && s.u.fields == "" {
		for _, name := range s.w.run.facts.absent() {
			err := s.w.fail(joblog.Entry{Message: "the namespace is included by name and does not exist",
				Scoped: true, Namespace: name, Resource: s.gr.String(), Name: name})
			if err != nil {
				return err
			}
		}
	}
	if s.items == 0 {
		return nil
	}
	return s.w.note(joblog.Entry{Level: joblog.Info, Scoped: true, Namespace: s.u.namespace, Resource: s.gr.String(),
		Message: fmt.Sprintf("Collected %d objects", s.items)})
}

// list reads the unit to its end, over as many revisions as it takes, from the
// page that token names if it was begun before.
func (w *worker) list(ctx context.Context, s *sink, token string) error {
	u := s.u
	req := rawlist.Request{Resource: u.res.GVR(), Namespace: u.namespace, Selector: u.selectorText(),
		Fields: u.fields, MaxItems: int64(w.run.PartItems), Aggregated: u.res.Aggregated}
	if revisions := w.run.Cut.Revisions(); len(revisions) > 0 {
		s.main = revisions[0]
	}
	if s.begun {
		req.Revision, req.Continue = s.revision, token
	} else {
		var err error
		if req.Revision, s.reason, err = w.run.revision(ctx, &u.res, u.namespace); err != nil {
			return err
		}
		if s.reason == "" && req.Revision != s.main {
			s.reason = reasonCompacted
		}
	}
	for expiries := 0; ; {
		before := s.after
		err := w.run.Lister.List(ctx, req, s)
		var expired *rawlist.ExpiredError
		switch {
		case errors.As(err, &expired) && expiries < maxExpiries:
			if expiries++; s.after != before {
				expiries = 0
			}
			if err := w.renew(ctx, s, &req, expired); err != nil {
				return err
			}
		case errors.Is(err, rawlist.ErrRevision) && !s.begun && req.Revision != "":
			req.Revision, s.reason = "", reasonForeign
		default:
			return err
		}
	}
}

// renew prepares the request that goes on after an expired one: behind the last
// sealed key where the server lets it, else from the start of a newer revision.
func (w *worker) renew(ctx context.Context, s *sink, req *rawlist.Request, expired *rawlist.ExpiredError) error {
	old := s.revision
	if req.Revision != "" {
		old = req.Revision
	}
	if s.reason == "" {
		s.reason = reasonCompacted
	}
	if expired.Continue != "" && s.begun {
		req.Continue, req.Revision = expired.Continue, ""
		if s.reason == reasonCompacted {
			s.expired = old
		}
	} else {
		req.Continue, req.Revision, s.skipTo = "", "", s.after
		if s.reason == reasonCompacted {
			var err error
			if req.Revision, err = w.run.Cut.Renew(ctx, old); err != nil {
				return err
			}
		}
	}
	return w.note(joblog.Entry{Level: joblog.Info, Scoped: true, Namespace: s.u.namespace, Resource: s.gr.String(),
		Message: fmt.Sprintf("The server no longer has revision %s: the list goes on behind %q at a newer one", old, s.after)})
}
