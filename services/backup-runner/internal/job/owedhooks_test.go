package job_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/job/jobtest"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/kube/podexec"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/job"
)

// bed is a cluster with a Backup that ended a minute ago, whose records have two Pods, one of them
// between its hooks.
type bed struct {
	client client.Client
	clock  *clocktesting.FakeClock
	store  *memstore.Store
	away   error // of the location
	ran    []string
	task   *job.OwedHooksTask
}

func (b *bed) Get(_ context.Context, name string) (*velerov1.BackupStorageLocation, error) {
	return &velerov1.BackupStorageLocation{ObjectMeta: metav1.ObjectMeta{Name: name}}, nil
}

func (b *bed) Open(context.Context, *velerov1.BackupStorageLocation) (objectstore.Store, error) {
	return b.store, b.away
}

func (b *bed) Run(_ context.Context, cmd *podexec.Command) (podexec.Output, error) {
	b.ran = append(b.ran, cmd.Namespace+"/"+cmd.Pod+" "+cmd.Container+" "+cmd.Args[0])
	return podexec.Output{}, nil
}

func newBed(t *testing.T, change func(*velerov1.Backup)) *bed {
	t.Helper()
	b := &bed{store: memstore.New(), clock: clocktesting.NewFakeClock(time.Unix(1_700_000_000, 0))}
	log, err := checkpoint.Open(t.Context(), b.store, "b", "u", 1)
	require.NoError(t, err)
	hooked := func(name string) checkpoint.HookedPod {
		return checkpoint.HookedPod{Object: checkpoint.Object{Kind: "Pod", Namespace: "a", Name: name}, Pre: 1,
			Post: []checkpoint.HookCommand{{Container: "main", Command: []string{"thaw"}, Timeout: time.Minute}}}
	}
	for _, rec := range []checkpoint.Record{
		{Hooked: []checkpoint.HookedPod{hooked("frozen"), hooked("done")}},
		{HooksEnded: []checkpoint.HooksEnded{{Pod: hooked("done").Object, Attempted: 2}}},
	} {
		_, err := log.Append(t.Context(), rec)
		require.NoError(t, err)
	}
	o := &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "b", UID: "u"}}
	o.Spec.StorageLocation = "default"
	at := metav1.NewTime(b.clock.Now().Add(-time.Minute))
	o.Status.Phase, o.Status.CompletionTimestamp = velerov1.BackupPhaseFailed, &at
	require.NoError(t, claim.Set(o, claim.Claim{Owner: "queue-scheduler", Epoch: 2}))
	require.NoError(t, mark.SetPostHooks(o, mark.PostHooks{Owed: true}))
	change(o)
	b.client = fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(o).Build()
	b.task = &job.OwedHooksTask{Locations: b, Exec: b, Reader: b.client, Cached: b.client, Client: b.client, Namespace: "velero",
		Clock: b.clock, Log: slog.New(slog.DiscardHandler)}
	return b
}

func (b *bed) owesHooks(t *testing.T) bool {
	t.Helper()
	o := &velerov1.Backup{}
	require.NoError(t, b.client.Get(t.Context(), client.ObjectKey{Namespace: "velero", Name: "b"}, o))
	return mark.PostHooksOf(o).Owed
}

// The post hooks of a backup that ended without its runner run all the same, each once.
func TestTheOwedPostHooksRun(t *testing.T) {
	b := newBed(t, func(*velerov1.Backup) {})
	b.task.Pass(t.Context())
	require.Equal(t, []string{"a/frozen main thaw"}, b.ran)
	require.False(t, b.owesHooks(t))
	b.task.Pass(t.Context())
	require.Len(t, b.ran, 1)
}

func TestABackupThatMayHaveARunnerIsLeftAlone(t *testing.T) {
	for name, change := range map[string]func(*velerov1.Backup){
		"it has not ended":  func(o *velerov1.Backup) { o.Status.Phase = velerov1.BackupPhaseInProgress },
		"it ended just now": func(o *velerov1.Backup) { o.Status.CompletionTimestamp.Time = time.Unix(1_700_000_000, 0) },
		"post hooks ran early, it owes none": func(o *velerov1.Backup) {
			if err := mark.SetPostHooks(o, mark.PostHooks{Early: true}); err != nil {
				panic(err)
			}
		},
		"another object's mark": func(o *velerov1.Backup) { o.UID = "v" },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, change)
			b.task.Pass(t.Context())
			require.Empty(t, b.ran)
		})
	}
}

// Post hooks that ran are owed no more, though the bucket does not take the record of that.
func TestABucketThatRefusesRecordsHasPostHooksRunOnce(t *testing.T) {
	b := newBed(t, func(*velerov1.Backup) {})
	b.store.Inject(func(op memstore.Op, _ string) error {
		if op == memstore.OpCreate || op == memstore.OpPut {
			return objectstore.ErrAccess
		}
		return nil
	})
	for range 2 {
		b.task.Pass(t.Context())
		require.Equal(t, []string{"a/frozen main thaw"}, b.ran)
		require.False(t, b.owesHooks(t))
	}
}

// A bucket that cannot be read is tried again, for a day.
func TestABucketThatIsAwayIsTriedAgain(t *testing.T) {
	b := newBed(t, func(*velerov1.Backup) {})
	b.away = objectstore.ErrAccess
	b.task.Pass(t.Context())
	require.True(t, b.owesHooks(t))
	b.away = nil
	b.store.Inject(func(memstore.Op, string) error { return objectstore.ErrAccess })
	b.task.Pass(t.Context())
	require.True(t, b.owesHooks(t))
	b.store.Inject(nil)
	b.task.Pass(t.Context())
	require.False(t, b.owesHooks(t))
	require.Equal(t, []string{"a/frozen main thaw"}, b.ran)

	b = newBed(t, func(*velerov1.Backup) {})
	b.away = objectstore.ErrNoBucket
	b.clock.Step(24 * time.Hour)
	events := &jobtest.Events{}
	b.task.Events = events
	b.task.Pass(t.Context())
	require.Contains(t, events.Text(), `Warning PostHooksNotRun: post hooks of the ended backup never ran, and are not tried again; run them by hand: BackupStorageLocation "default": `)
	require.False(t, b.owesHooks(t))
	require.Empty(t, b.ran)
}
