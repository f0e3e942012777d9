package collect

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/holdfast-io/holdfast/pkg/archive/reference"
	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/pkg/kube/rawlist"
	"github.com/holdfast-io/holdfast/pkg/spec/selection"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/actionset"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/history"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/partwriter"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/plan"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/volumes"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/cut"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/itemset"
)

// unitLister lists raw objects; rawlist.Client is one.
type unitLister interface {
	List(ctx context.Context, req rawlist.Request, sink rawlist.Sink) error
}

// listingConfig is what the workers of a backup list with. Everything is required but Actions and Items.
type listingConfig struct {
	Lister unitLister
	Cut    *cut.Cut
	Filter *selection.Filter
	// PartItems is how many objects a page has at most.
	PartItems int
	// Actions may match objects, and Items receives the results of objects that actions may name. Both
	// are nil if no action may name any.
	Actions *actionset.Bound
	Items   *itemset.Set
	// Past is how far earlier holders came with each unit.
	Past    *history.Units
	Facts   *volumes.Facts
	Remarks partwriter.VolumeRules
	// References makes what finds references.
	References *reference.Set
	Progress   *partwriter.Counter
	Stop       plan.StopSignal
}

// unitWorker lists one unit after another. Used by one goroutine at a time.
type unitWorker struct {
	cfg   *listingConfig
	out   *partwriter.Writer
	typed []byte // scratch: an object with its type
}

// newUnitWorker returns a worker that lists into out.
func newUnitWorker(cfg *listingConfig, out *partwriter.Writer) *unitWorker {
	return &unitWorker{cfg: cfg, out: out}
}

// List lists a unit, or what an earlier holder left of it. What is wrong with the kind is noted; an
// error is one that ends the job, or plan.ErrStopped at the end of a page.
func (w *unitWorker) List(ctx context.Context, u *plan.Unit) error {
	if w.cfg.Past.Done(u.ID()) {
		return nil
	}
	s := w.newSink(u)
	var token string
	if at, ok := w.cfg.Past.At(u.ID()); ok {
		s.resumeAt(&at)
		token = at.Continue
	}
	err := w.listUnit(ctx, s, token)
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
	return s.failUnit(ctx, err)
}

// listUnit reads the unit to its end, over as many revisions as it takes, from the page that token
// names if it was begun before.
func (w *unitWorker) listUnit(ctx context.Context, s *unitSink, token string) error {
	u := s.u
	req := rawlist.Request{Resource: u.Res.GVR(), Namespace: u.Namespace, Selector: u.SelectorText(),
		Fields: u.Fields, MaxItems: int64(w.cfg.PartItems), Aggregated: u.Res.Aggregated}
	if revisions := w.cfg.Cut.Revisions(); len(revisions) > 0 {
		s.main = revisions[0]
	}
	if s.begun {
		req.Revision, req.Continue = s.revision, token
	} else {
		var err error
		if req.Revision, s.reason, err = w.cfg.Cut.Of(ctx, &u.Res, u.Namespace); err != nil {
			return err
		}
		if s.reason == "" && req.Revision != s.main {
			s.reason = cut.ReasonCompacted
		}
	}
	for expiries := 0; ; {
		before := s.after
		err := w.cfg.Lister.List(ctx, req, s)
		var expired *rawlist.ExpiredError
		switch {
		case errors.As(err, &expired) && expiries < cut.MaxExpiries:
			if expiries++; s.after != before {
				expiries = 0
			}
			if err := w.renewExpired(ctx, s, &req, expired); err != nil {
				return err
			}
		case errors.Is(err, rawlist.ErrRevision) && !s.begun && req.Revision != "":
			req.Revision, s.reason = "", cut.ReasonForeign
		default:
			return err
		}
	}
}

// renewExpired prepares the request that continues after an expired one: behind the last sealed key where
// the server lets it, else from the start of a newer revision.
func (w *unitWorker) renewExpired(ctx context.Context, s *unitSink, req *rawlist.Request, expired *rawlist.ExpiredError) error {
	old := s.revision
	if req.Revision != "" {
		old = req.Revision
	}
	if s.reason == "" {
		s.reason = cut.ReasonCompacted
	}
	if expired.Continue != "" && s.begun {
		req.Continue, req.Revision = expired.Continue, ""
		if s.reason == cut.ReasonCompacted {
			s.expired = old
		}
	} else {
		req.Continue, req.Revision, s.skipTo = "", "", s.after
		if s.reason == cut.ReasonCompacted {
			var err error
			if req.Revision, err = w.cfg.Cut.Renew(ctx, old); err != nil {
				return err
			}
		}
	}
	return w.out.Inform(joblog.Entry{Scoped: true, Namespace: s.u.Namespace, Resource: s.gr.String(),
		Message: fmt.Sprintf("The server no longer has revision %s: the list goes on behind %q at a newer one", old, s.after)})
}

// failUnit ends the unit where it is, which is an error.
func (s *unitSink) failUnit(ctx context.Context, err error) error {
	s.w.cfg.Progress.Page(s.u.ID(), 0, 0)
	message := "objects of this kind could not be listed: they are not backed up"
	if s.begun {
		message = fmt.Sprintf("objects of this kind could not be listed beyond %q: the rest of them is not backed up", s.after)
	}
	s.coverRange(checkpoint.Range{Revision: s.revision, After: s.after, Last: s.after, Done: true})
	entry := joblog.Entry{Message: message, Err: err.Error(), Scoped: true, Namespace: s.u.Namespace, Resource: s.gr.String()}
	if !s.begun && s.wentMeanwhile(ctx, err) {
		entry.Message, entry.Err = "The kind has no objects: its definition was deleted after the backup began", ""
		return s.w.out.Inform(entry)
	}
	return s.w.out.Fail(entry)
}

// wentMeanwhile reports that a kind is not served because its definition was deleted after the discovery.
func (s *unitSink) wentMeanwhile(ctx context.Context, err error) bool {
	var refused *rawlist.StatusError
	if !s.u.Res.Custom || !errors.As(err, &refused) || refused.Code != http.StatusNotFound {
		return false
	}
	finder := &plan.Finder{Lister: s.w.cfg.Lister, Cut: s.w.cfg.Cut}
	defined, err := finder.IsDefined(ctx, &s.u.Res)
	return err == nil && !defined
}
