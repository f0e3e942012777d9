package job

import (
	"context"
	"log/slog"
	"time"

	"golang.org/x/sync/semaphore"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/count"
	"github.com/holdfast-io/holdfast/pkg/job/engine"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/pkg/kube/resource"
	"github.com/holdfast-io/holdfast/pkg/kube/retry"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/spec/selection"
	eventv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/event/v1"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/podhook"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/volumes"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/cut"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/finalize"
)

// Service is the name of the service, which begins those of its failpoints.
const Service = "backup-runner"

// GracePeriod is how long a backup may continue once the process stops, to record what it has
// listed.
const GracePeriod = 5 * time.Second

// Ledger is the list of what was admitted; ledger.Ledger is one.
type Ledger interface {
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

// Events announces phases; messaging.Client is one.
type Events interface {
	PublishEvent(ctx context.Context, event *eventv1.Event) error
}

// Actions opens what the objects of one backup go through: plugins and what is built in.
type Actions interface {
	// Open returns the actions for one run of a job; their Close must be called. note gets what
	// plugins log, from many goroutines. lock is collect.Job's LockVolume.
	Open(ctx context.Context, backup *velerov1.Backup, catalog *resource.Catalog, filter *selection.Filter, note func(joblog.Entry), lock Lock) collect.Actions
}

// Lock is collect.Job's LockVolume.
type Lock = func(ctx context.Context, volume string) (unlock func(), err error)

// Config is what backups are made with. Everything is required but Recorder, Actions, Snapshots,
// CSI, PodVolumes, Exec, ConsistentCut, PlanLifetime and the sizes, whose zero values mean collect's defaults.
type Config struct {
	Reader    client.Reader // uncached
	Ledger    Ledger
	Locations Locations
	Cluster   Cluster
	Events    Events
	Recorder  mark.Events // of Kubernetes Events about backups; nil for none
	Actions   Actions     // nil for none
	// Snapshots opens what takes native snapshots in one run of a job; its Close must be called.
	// note gets what plugins log. Nil takes none.
	Snapshots func(ctx context.Context, backup *velerov1.Backup, note func(joblog.Entry)) *volumes.Taker
	// CSI removes the objects of CSI snapshots; nil where none are taken.
	CSI finalize.Snapshots
	// PodVolumes are the requests of file-system backups; nil where none are made.
	PodVolumes finalize.PodVolumes
	// Operations cancels what the actions of a backup began that fails.
	Operations *operation.Canceller
	// Exec runs hooks in Pods; nil runs none.
	Exec   podhook.Executor
	Counts *count.Backups
	Clock  clock.WithTicker
	Log    *slog.Logger
	// WorkDir holds a directory for each running job.
	WorkDir string
	// Workers, PartBytes, PartItems and BlockWorkers: see collect.Config.
	Workers      int
	PartBytes    int64
	PartItems    int
	BlockWorkers int
	// ConsistentCut lists everything at one revision.
	ConsistentCut bool
	// PlanLifetime is how long plans of dry runs are kept.
	PlanLifetime time.Duration
	// StorePatience is how long an unreachable bucket is waited for.
	StorePatience time.Duration
}

// Kind is the engine's kind of backups. Safe for concurrent use.
type Kind struct {
	Config
	planning *semaphore.Weighted // dry runs
}

var _ engine.Kind[*velerov1.Backup] = (*Kind)(nil)

// New returns the kind.
func New(cfg Config) *Kind { return &Kind{Config: cfg, planning: semaphore.NewWeighted(plansAtOnce)} }

// callLoop repeats calls of the API server while it is away.
func (k *Kind) callLoop(log *slog.Logger) retry.Loop { return retry.Loop{Clock: k.Clock, Log: log} }
