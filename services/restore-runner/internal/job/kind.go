package job

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/podvolume"
	"github.com/holdfast-io/holdfast/pkg/job/engine"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/pkg/job/validate"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore"
)

// Grace is how long objects in flight, or the end of a restore, may take once the process stops or
// the restore has a request to cancel.
const Grace = 5 * time.Second

// deletedPause is the pause before a deleted restore is looked at whose job is still stopping.
const deletedPause = time.Second

// Ledger reports whether a restore is admitted; ledger.Ledger is one.
type Ledger interface {
	Get(ctx context.Context, uid types.UID) (ledger.Entry, bool, error)
}

// Locations opens the stores of backups; location.Opener is one.
type Locations interface {
	Get(ctx context.Context, name string) (*velerov1.BackupStorageLocation, error)
	// Default returns the location that is the default.
	Default(ctx context.Context) (*velerov1.BackupStorageLocation, error)
	Open(ctx context.Context, loc *velerov1.BackupStorageLocation) (objectstore.Store, error)
}

// Cleaner removes what a restore that is being deleted left in the bucket.
type Cleaner interface {
	// Clean removes the files and the finalizer. An error means that it has to be tried again.
	Clean(ctx context.Context, restore *velerov1.Restore) error
}

// Config is what restores work with.
type Config struct {
	// Reader must not be a cache.
	Reader    client.Reader
	Client    client.Client
	Namespace string
	Ledger    Ledger
	Locations Locations
	Cleaner   Cleaner
	// REST is the cluster restored to.
	REST    *rest.Config
	Clock   clock.WithTicker
	Log     *slog.Logger
	Metrics *Metrics
	// WorkDir holds one directory for each running restore.
	WorkDir string
	// TerminatingTimeout and ResourceTimeout are Velero's server settings of these names.
	TerminatingTimeout, ResourceTimeout time.Duration
	// Actions opens the actions that a restore puts its objects to; ctx is the restore's. note
	// takes what they log, from any goroutine and until Close. Nil means that there are none.
	Actions func(ctx context.Context, note func(joblog.Entry)) ActionSet
	// Snapshotters opens what makes volumes of native snapshots; done ends its processes. Nil
	// restores none.
	Snapshotters func(ctx context.Context, note func(joblog.Entry)) (s restore.Snapshotters, done func())
	// Operations cancels what the actions of a restore began that fails or is deleted.
	Operations *operation.Canceller
	// WaitImage is the image of the init container in which restored Pods wait for the data of their
	// volumes. Empty restores no such data.
	WaitImage string
	// WaitConfig reads what is said about that container. Nil says nothing.
	WaitConfig func(ctx context.Context) (*podvolume.WaitConfig, error)
	// Exec runs the hooks of restored Pods. Nil runs none.
	Exec restore.Executor
	// CSI has claims be filled from their CSI snapshots.
	CSI bool
	// ReadyTimeout is how long an object waits until its additional items are ready, unless the action
	// sets it.
	ReadyTimeout time.Duration
	// StorePatience is how long a location is waited for that cannot be reached.
	StorePatience time.Duration
	// RecordEvery and RecordBatch are the time, and the number of records, after which outcomes are
	// stored: a crash loses no more. Zero means one second and a thousand.
	RecordEvery time.Duration
	RecordBatch int
	// Validator judges Restores whose dry run is asked for, and those of stored plans.
	Validator *validate.Validator
	// PlanLifetime is how long the plans of dry runs are kept.
	PlanLifetime time.Duration
	// Events records what a restore waits for. Nil records nothing.
	Events mark.Events
	// Ended is called with each restore that got a terminal phase, after that is durable.
	Ended func(ctx context.Context, restore *velerov1.Restore)
}

func (c *Config) currentTime() *metav1.Time {
	t := metav1.NewTime(c.Clock.Now())
	return &t
}

// Kind implements engine.Kind and engine.Finalizer for Restores. Safe for concurrent use.
type Kind struct {
	cfg Config

	mu      sync.Mutex
	running map[types.UID]*outcome.Recorder

	planning *semaphore.Weighted // dry runs

	idle atomic.Int64 // the objects in the plans of the restores without a place
}

// New returns the kind.
func New(cfg Config) *Kind {
	if cfg.RecordEvery <= 0 {
		cfg.RecordEvery = recordEvery
	}
	if cfg.RecordBatch <= 0 {
		cfg.RecordBatch = recordBatch
	}
	return &Kind{cfg: cfg, running: map[types.UID]*outcome.Recorder{}, planning: semaphore.NewWeighted(dryRunsAtOnce)}
}

// Pending implements engine.Kind.
func (k *Kind) Pending(ctx context.Context, restore *velerov1.Restore) (engine.Interest, error) {
	switch phase := restore.Status.Phase; {
	case phase.Terminal():
		return engine.None, nil
	case hasBegun(phase), leftUnfinished(restore):
		return engine.Resume, nil
	case isDryRun(restore):
		return engine.Begin, nil
	case phase.IsNew():
		_, admitted, err := k.cfg.Ledger.Get(ctx, restore.UID)
		if err != nil || !admitted {
			return engine.Wait, err
		}
		return engine.Begin, nil
	}
	return engine.Wait, nil
}

// Terminal implements engine.Kind.
func (k *Kind) Terminal(restore *velerov1.Restore) bool { return restore.Status.Phase.Terminal() }

// Finalize implements engine.Finalizer: it removes the files of a deleted restore once no process
// writes them any more, nor needs them to resume what the restore left paused, or to cancel what it
// began; for each of these they stay StorePatience at most, one after the other.
func (k *Kind) Finalize(ctx context.Context, restore *velerov1.Restore, free func() bool) (again time.Duration, err error) {
	if restore.DeletionTimestamp == nil {
		return 0, nil
	}
	if !restore.Status.Phase.Terminal() && !free() {
		return deletedPause, nil
	}
	if location := mark.PausedLocation(restore); location != "" {
		if k.isWithinWaits(restore, 1) {
			return deletedPause, nil
		}
		k.cfg.Log.ErrorContext(ctx, "Deleted restore leaves objects paused; resume them by hand", "restore", restore.Name, "location", location)
	}
	if again := k.endOperations(ctx, restore); again > 0 {
		return again, nil
	}
	if err := k.cfg.Cleaner.Clean(ctx, restore); err != nil {
		if ctx.Err() != nil || apierrors.IsConflict(err) {
			return deletedPause, nil
		}
		k.cfg.Log.WarnContext(ctx, "Failed to remove the files of a deleted restore; will retry", "restore", restore.Name, "error", err)
		return engine.Period, nil
	}
	return 0, nil
}

// isWithinWaits reports whether the first so many waits of a deleted restore, of StorePatience each, are not
// over: what an earlier one took is not missing in a later one.
func (k *Kind) isWithinWaits(restore *velerov1.Restore, waits int) bool {
	return k.cfg.Clock.Since(restore.DeletionTimestamp.Time) < time.Duration(waits)*k.cfg.StorePatience
}

// Running returns how far a restore of this process is; false when none of its objects is being
// restored here.
func (k *Kind) Running(uid types.UID) (outcome.Counts, bool) {
	recorder := k.runningRecorder(uid)
	if recorder == nil {
		return outcome.Counts{}, false
	}
	return recorder.Counts(), true
}

// LogTail returns the log of a restore of this process as it is written; nil when none of its objects is being
// restored here.
func (k *Kind) LogTail(uid types.UID) *joblog.Tail {
	recorder := k.runningRecorder(uid)
	if recorder == nil {
		return nil
	}
	return recorder.LogTail()
}

func (k *Kind) runningRecorder(uid types.UID) *outcome.Recorder {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.running[uid]
}

// showProgress has Running answer from a recorder, until hideProgress.
func (k *Kind) showProgress(uid types.UID, recorder *outcome.Recorder) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.running[uid] = recorder
}

// hideProgress ends showProgress, unless a later attempt shows another recorder.
func (k *Kind) hideProgress(uid types.UID, recorder *outcome.Recorder) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.running[uid] == recorder {
		delete(k.running, uid)
	}
}
