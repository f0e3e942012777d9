package sweep

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// maxFailures is how many directories that fail end a pass: the bucket or the API server is away
// rather than they.
const maxFailures = 20

var errTooMany = fmt.Errorf("%d directories failed, the rest is left to the next pass", maxFailures)

// pass is one sweep of one location.
type pass struct {
	*Sweeper
	place  *place
	mine   string // this cluster
	store  objectstore.Store
	log    *slog.Logger
	seen   map[string]time.Time // place.gone of the next pass
	owners map[string]owner     // of directories with unfinished uploads
	count  counts
}

// counts is what a pass did and saw.
type counts struct {
	objects, bytes, uploads      int64
	unowned, foreign, unreadable int
	failed                       int
}

func (p *pass) run(ctx context.Context, loc *velerov1.BackupStorageLocation) (err error) {
	ctx, span := p.Tracer.Start(ctx, "sweep", trace.WithAttributes(attribute.String("holdfast.location", loc.Name)))
	defer func() {
		p.Metrics.pass(loc.Name, &p.count, err)
		span.SetAttributes(attribute.Int64("holdfast.sweep.objects", p.count.objects), attribute.Int64("holdfast.sweep.uploads", p.count.uploads))
		if err != nil {
			span.SetStatus(codes.Error, err.Error())
		}
		span.End()
	}()
	if p.mine, err = p.clusterUID(ctx); err != nil {
		return err
	}
	if p.store, err = p.Opener.Open(ctx, loc); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.store.Close()) }()
	for _, step := range []func(context.Context) error{p.backups, p.restores, p.uploads} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	p.report(ctx)
	return nil
}

func (p *pass) report(ctx context.Context) {
	level := slog.LevelDebug
	if p.count.objects > 0 || p.count.uploads > 0 {
		level = slog.LevelInfo
	}
	p.log.Log(ctx, level, "leftovers swept", "objects", p.count.objects, "bytes", p.count.bytes, "uploads", p.count.uploads,
		"unowned", p.count.unowned, "foreign", p.count.foreign, "unreadable", p.count.unreadable, "failed", p.count.failed)
}

// settle takes the outcome of one directory: what failed is logged and left to the next pass,
// unless that is nearly everything.
func (p *pass) settle(ctx context.Context, dir string, err error) error {
	if err == nil || ctx.Err() != nil {
		return ctx.Err()
	}
	p.log.Warn("leftovers of a directory not swept", "directory", dir, "error", err)
	if p.count.failed++; p.count.failed == maxFailures {
		return errTooMany
	}
	return nil
}

// goneLongEnough notes that the object a directory was made for is gone, and reports whether it was
// so a grace ago already.
func (p *pass) goneLongEnough(dir string) bool {
	first, ok := p.place.gone[dir]
	if !ok {
		first = p.Clock.Now()
	}
	if p.Clock.Since(first) >= p.Grace {
		return true
	}
	p.seen[dir] = first
	return false
}

const (
	// page is how many keys are held at once.
	page = 1000
	// step is how many objects are removed at most without asking again whether they are leftovers,
	// and fresh for how long.
	step  = 100
	fresh = 2 * time.Second
	// parallel is how many objects are removed at once.
	parallel = 16
)

// still tells, from uncached reads, whether something is a leftover now.
type still func(context.Context) (bool, error)

// empty removes everything under prefix but the object keep; false means that it is, or may be,
// somebody's after all.
func (p *pass) empty(ctx context.Context, prefix, keep string, leftover still) (bool, error) {
	for {
		var infos []objectstore.Info
		err := p.store.List(ctx, prefix, func(i objectstore.Info) error {
			if i.Key != keep {
				infos = append(infos, i)
			}
			if len(infos) == page {
				return fs.SkipAll
			}
			return nil
		})
		if err != nil || len(infos) == 0 {
			return err == nil, err
		}
		if ok, err := p.remove(ctx, infos, leftover); !ok || err != nil {
			return false, err
		}
	}
}
