package job

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/claim"
	"github.com/holdfast-io/holdfast/pkg/fabric"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/ledger"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	workv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/work/v1"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/metrics"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore"
)

// Claims decides who works on a restore; claim.Instance is one.
type Claims interface {
	Take(obj metav1.Object) (claim.Claim, error)
	GuardSeeing(ctx context.Context, obj client.Object, seen func(client.Object)) (context.Context, context.CancelFunc)
	Confirm(ctx context.Context, obj client.Object) error
}

// Ledger tells whether a restore is admitted; ledger.Ledger is one.
type Ledger interface {
	Get(ctx context.Context, uid types.UID) (ledger.Entry, bool, error)
}

// Locations opens the stores of backups; location.Opener is one.
type Locations interface {
	Get(ctx context.Context, name string) (*velerov1.BackupStorageLocation, error)
	Open(ctx context.Context, loc *velerov1.BackupStorageLocation) (objectstore.Store, error)
}

// Config is what a Runner works with.
type Config struct {
	// Reader must not be a cache.
	Reader    client.Reader
	Client    client.Client
	Namespace string
	Claims    Claims
	Ledger    Ledger
	Locations Locations
	// REST is the cluster restored to.
	REST    *rest.Config
	Clock   clock.WithTicker
	Log     *slog.Logger
	Metrics *metrics.Metrics
	// WorkDir holds one directory for each running restore.
	WorkDir string
	// TerminatingTimeout and ResourceTimeout are Velero's server settings of these names.
	TerminatingTimeout, ResourceTimeout time.Duration
	// Actions opens the actions that a restore puts its objects to; ctx is the restore's. note takes what they log, from any
	// goroutine and until Close. Nil means that there are none.
	Actions func(ctx context.Context, note func(joblog.Entry)) ActionSet
	// Snapshotters opens what makes volumes of native snapshots; done ends its processes. Nil restores none.
	Snapshotters func(ctx context.Context, note func(joblog.Entry)) (s restore.Snapshotters, done func())
	// ReadyTimeout is how long an object waits until its additional items are ready, where the action does not say.
	ReadyTimeout time.Duration
	// StorePatience is how long a location is waited for that cannot be reached.
	StorePatience time.Duration
	// RecordEvery and RecordBatch say after what time, and after how many records, outcomes are stored: a death loses no more.
	// Zero means one second and a thousand.
	RecordEvery time.Duration
	RecordBatch int
	// Ended is told each terminal phase, after it is durable.
	Ended func(ctx context.Context, restore *velerov1.Restore)
}

// Runner runs restores. Safe for concurrent use.
type Runner struct {
	cfg Config

	mu      sync.Mutex
	running map[types.UID]*outcome.Recorder // nil until the plan is being worked on
}

// New returns a Runner.
func New(cfg Config) *Runner {
	if cfg.RecordEvery <= 0 {
		cfg.RecordEvery = recordEvery
	}
	if cfg.RecordBatch <= 0 {
		cfg.RecordBatch = recordBatch
	}
	return &Runner{cfg: cfg, running: map[types.UID]*outcome.Recorder{}}
}

// Reasons for not working on a restore. None of them is a failure of the restore.
var (
	errNothing     = errors.New("nothing to do")
	errNotAdmitted = errors.New("not admitted yet")
	errDeleted     = errors.New("the restore is being deleted")
)

// retryAfter is the pause before a job is tried again that the API server did not let start or finish.
const retryAfter = 5 * time.Second

// Handle is the handler of restore.run hints.
func (r *Runner) Handle(ctx context.Context, hint *workv1.Hint) fabric.Outcome {
	if hint.GetKind() != "Restore" || hint.GetNamespace() != r.cfg.Namespace {
		return fabric.DeadLetter(errors.New("not a Restore of namespace " + r.cfg.Namespace))
	}
	if expires := hint.GetExpireTime(); expires != nil && expires.AsTime().Before(r.cfg.Clock.Now()) {
		return fabric.Done()
	}
	err := r.Run(ctx, hint.GetName(), types.UID(hint.GetUid()))
	switch {
	case err == nil:
		return fabric.Done()
	case ctx.Err() != nil:
		return fabric.Retry(time.Second, nil)
	}
	return fabric.Retry(retryAfter, err)
}

// Run works on a restore until it is terminal or no longer ours. Nil means that nothing is left to do here now; an error,
// that the job has to be tried again later.
func (r *Runner) Run(ctx context.Context, name string, uid types.UID) error {
	if !r.begin(uid) {
		return nil
	}
	defer r.end(uid)
	restore, mine, err := r.take(ctx, name, uid)
	var held *claim.HeldError
	var damage *unreadableError
	switch {
	case err == nil:
	case errors.As(err, &damage):
		return r.settle(ctx, restore, damage)
	case errors.As(err, &held), errors.Is(err, errNothing), errors.Is(err, errNotAdmitted),
		errors.Is(err, kube.ErrReplaced), apierrors.IsNotFound(err):
		r.cfg.Log.Debug("restore not taken", "restore", name, "reason", err)
		return nil
	default:
		return err
	}
	return r.work(ctx, restore, mine)
}

// Running tells how far a restore of this process is; false when it is not worked on here.
func (r *Runner) Running(uid types.UID) (outcome.Counts, bool) {
	r.mu.Lock()
	recorder, ok := r.running[uid]
	r.mu.Unlock()
	if !ok || recorder == nil {
		return outcome.Counts{}, ok
	}
	return recorder.Counts(), true
}

func (r *Runner) begin(uid types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.running[uid]; ok {
		return false
	}
	r.running[uid] = nil
	return true
}

func (r *Runner) show(uid types.UID, recorder *outcome.Recorder) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running[uid] = recorder
}

func (r *Runner) end(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.running, uid)
}
