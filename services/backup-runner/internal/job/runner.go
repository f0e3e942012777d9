package job

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/claim"
	"github.com/holdfast-io/holdfast/pkg/fabric"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/ledger"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/resource"
	eventv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/event/v1"
	workv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/work/v1"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/cut"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/metrics"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/snapshot"
)

// Instance claims objects for this process; claim.Instance is one.
type Instance interface {
	Name() string
	Ready() bool
	Take(obj metav1.Object) (claim.Claim, error)
	GuardSeeing(ctx context.Context, obj client.Object, seen func(client.Object)) (context.Context, context.CancelFunc)
	Confirm(ctx context.Context, obj client.Object) error
}

// Ledger tells what was admitted; ledger.Ledger is one.
type Ledger interface {
	// Release removes the entry of a backup whose object is gone.
	Release(ctx context.Context, uid types.UID) error
	LockVolume(ctx context.Context, uid types.UID, volume string) error
	UnlockVolume(ctx context.Context, uid types.UID, volume string) error
	Get(ctx context.Context, uid types.UID) (ledger.Entry, bool, error)
}

// Locations opens backup storage locations; location.Opener is one.
type Locations interface {
	Get(ctx context.Context, name string) (*velerov1.BackupStorageLocation, error)
	Open(ctx context.Context, bsl *velerov1.BackupStorageLocation) (objectstore.Store, error)
}

// Cluster is the cluster to back up: lists, revisions and what it serves.
type Cluster interface {
	collect.Lister
	cut.Revisioner
	Discover(ctx context.Context) (*resource.Catalog, error)
}

// Events tells others about phases; fabric.Client is one.
type Events interface {
	PublishEvent(ctx context.Context, event *eventv1.Event) error
}

// Actions opens what looks at the objects of one backup: plugins and what is built
// in.
type Actions interface {
	// Open returns the actions for one run of a job; their Close must be called.
	// note gets what plugins log, from many goroutines.
	Open(ctx context.Context, backup *velerov1.Backup, catalog *resource.Catalog, note func(joblog.Entry)) collect.Actions
}

// Config is what a Runner works with. Everything is required but Actions, Snapshots,
// ConsistentCut and the sizes, whose zero values mean collect's defaults.
type Config struct {
	Reader    client.Reader // uncached
	Client    client.Client
	Namespace string
	Instance  Instance
	Ledger    Ledger
	Locations Locations
	Cluster   Cluster
	Events    Events
	Actions   Actions // nil for none
	// Snapshots opens what takes native snapshots in one run of a job; its Close
	// must be called. note gets what plugins log. Nil takes none.
	Snapshots func(ctx context.Context, backup *velerov1.Backup, note func(joblog.Entry)) *snapshot.Taker
	Metrics   *metrics.Metrics
	Tracer    trace.Tracer
	Clock     clock.WithTicker
	Log       *slog.Logger
	// WorkDir holds a directory for each running job.
	WorkDir string
	// Workers, PartBytes, PartItems and BlockWorkers: see collect.Config.
	Workers      int
	PartBytes    int64
	PartItems    int
	BlockWorkers int
	// ConsistentCut lists everything at one revision.
	ConsistentCut bool
	// StorePatience is how long an unreachable bucket is waited for.
	StorePatience time.Duration
	// KeepFailed tells whether the parts of a backup that failed stay until its
	// deletion, which shows their objects to delete item actions; nil: they go.
	KeepFailed func() bool
}

// Runner runs backups. Safe for concurrent use; any number may run at once.
type Runner struct {
	Config
	mu      sync.Mutex
	running map[types.UID]struct{}
}

// New returns a Runner.
func New(cfg Config) *Runner {
	return &Runner{Config: cfg, running: map[types.UID]struct{}{}}
}

// retryPause is how long a hint rests when its job could not be run now.
const retryPause = 10 * time.Second

// Handle is the handler of backup.run hints.
func (r *Runner) Handle(ctx context.Context, hint *workv1.Hint) fabric.Outcome {
	if hint.GetNamespace() != r.Namespace {
		return fabric.Done()
	}
	err := r.Run(ctx, hint.GetName(), types.UID(hint.GetUid()))
	var held *claim.HeldError
	switch {
	case err == nil:
		return fabric.Done()
	case errors.As(err, &held):
		// A live holder needs no hint; its death triggers a takeover by itself.
		return fabric.Done()
	case ctx.Err() != nil:
		return fabric.Retry(0, nil) // handed over
	}
	return fabric.Retry(retryPause, err)
}

// errNotNow means that the object is not in a phase to be run, or not admitted.
var errNotNow = errors.New("not ready to be run")

// Run claims the backup of that name and UID, if it is ready or abandoned, and
// runs it to its end. Nil means that nothing is left to do here; *claim.HeldError
// that a live instance holds it.
func (r *Runner) Run(ctx context.Context, name string, uid types.UID) error {
	if !r.enter(uid) {
		return nil // this process runs it already
	}
	defer r.leave(uid)
	backup := &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: name, UID: uid}}
	j := &execution{Runner: r, backup: backup, log: r.Log.With("backup", name, "uid", uid)}
	err := j.claim(ctx)
	switch {
	case errors.Is(err, errNotNow), errors.Is(err, kube.ErrReplaced), apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return err
	}
	return j.guarded(ctx)
}

func (r *Runner) enter(uid types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.running[uid]; ok {
		return false
	}
	r.running[uid] = struct{}{}
	return true
}

func (r *Runner) leave(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.running, uid)
}

// Active reports whether this process runs the backup now.
func (r *Runner) Active(uid types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.running[uid]
	return ok
}
