package sweep

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/storedplan"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/telemetry/span"
)

// maxFailures is how many directories that fail end a pass: the bucket or the API server is away
// rather than they.
const maxFailures = 20

var errTooMany = fmt.Errorf("%d directories failed, the rest is left to the next pass", maxFailures)

// sweepPass is one sweep of one location.
type sweepPass struct {
	sweeper   *Sweeper
	place     *locationState
	store     objectstore.Store
	inspector usageInspector
	remover   leftoverRemover
	log       *slog.Logger
	seen      map[string]time.Time // place.gone of the next pass
	soon      bool                 // something only waits for the grace to end
	owners    map[string]ownerFile // of directories with unfinished uploads
	count     passCounts
}

// passCounts is what a pass did and saw.
type passCounts struct {
	objects, bytes, uploads      int64
	unowned, foreign, unreadable int
	failed                       int
}

func (p *sweepPass) sweepLocation(ctx context.Context, loc *velerov1.BackupStorageLocation) (err error) {
	ctx, swept := p.sweeper.Tracer.Start(ctx, "sweep", trace.WithAttributes(attribute.String("holdfast.location", loc.Name)))
	ctx, end := span.Group(ctx)
	defer func() {
		end()
		p.sweeper.Metrics.countPass(loc.Name, &p.count, err)
		swept.SetAttributes(attribute.Int64("holdfast.sweep.objects", p.count.objects), attribute.Int64("holdfast.sweep.uploads", p.count.uploads))
		span.End(swept, err)
	}()
	cluster, err := p.sweeper.clusterUID(ctx)
	if err != nil {
		return err
	}
	if p.store, err = p.sweeper.Opener.Open(ctx, loc); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.store.Close()) }()
	p.inspector = usageInspector{reader: p.sweeper.Reader, store: p.store, cluster: cluster}
	p.remover = leftoverRemover{store: p.store, clock: p.sweeper.Clock, log: p.log, count: &p.count}
	steps := []func(context.Context) error{p.sweepBackups, p.sweepRestores, p.sweepPlans, p.sweepUploads}
	if loc.Spec.AccessMode == velerov1.LocationModeReadOnly {
		steps = []func(context.Context) error{p.sweepRestores} // nothing else is written there
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
	}
	p.logCounts(ctx)
	return nil
}

func (p *sweepPass) logCounts(ctx context.Context) {
	level := slog.LevelDebug
	if p.count.objects > 0 || p.count.uploads > 0 {
		level = slog.LevelInfo
	}
	p.log.Log(ctx, level, "Swept leftovers", "objects", p.count.objects, "bytes", p.count.bytes, "uploads", p.count.uploads,
		"unowned", p.count.unowned, "foreign", p.count.foreign, "unreadable", p.count.unreadable, "failed", p.count.failed)
}

// sweepPlans removes plans of dry runs that have expired, whichever cluster made them.
func (p *sweepPass) sweepPlans(ctx context.Context) error {
	files, err := storedplan.DeleteExpired(ctx, p.store, p.sweeper.Clock.Now())
	p.count.objects += int64(files)
	return p.noteOutcome(ctx, layout.PlansDir, err)
}

// noteOutcome takes the outcome of one directory: what failed is logged and left to the next pass,
// unless that is nearly everything.
func (p *sweepPass) noteOutcome(ctx context.Context, dir string, err error) error {
	if err == nil || ctx.Err() != nil {
		return ctx.Err()
	}
	p.log.Warn("Failed to sweep leftovers of a directory; will retry with the next pass", "directory", dir, "error", err)
	if p.count.failed++; p.count.failed == maxFailures {
		return errTooMany
	}
	return nil
}

// goneLongEnough notes that the object a directory was made for is gone, and reports whether it was
// so a grace ago already.
func (p *sweepPass) goneLongEnough(dir string) bool {
	first, ok := p.place.gone[dir]
	if !ok {
		first = p.sweeper.Clock.Now()
	}
	if p.sweeper.Clock.Since(first) >= p.sweeper.Grace {
		return true
	}
	p.seen[dir], p.soon = first, true
	return false
}

// isOwnDirectory reports whether a directory may be looked at further, and counts it otherwise.
func (p *sweepPass) isOwnDirectory(o ownerFile, dir string) bool {
	switch o.kind {
	case oursKind:
		return true
	case foreignKind:
		p.count.foreign++
	case unreadableKind:
		p.count.unreadable++
		p.log.Warn("Failed to read owner file; the directory stays", "directory", dir)
	case noneKind:
		p.count.unowned++
	}
	return false
}
