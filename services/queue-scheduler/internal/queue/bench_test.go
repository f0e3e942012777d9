package queue_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
	"github.com/holdfast-io/holdfast/services/queue-scheduler/internal/queue"
)

var crowdLimits = ledger.Limits{Backups: 50, Restores: 1}

// newCrowd is a full queue: some run, the others wait for them, for each other and for a place, in all
// classes.
func newCrowd(queued int) (entries []ledger.Entry, backups []*velerov1.Backup) {
	const running = 50
	for i := range running {
		entries = append(entries, ledger.Entry{
			UID: types.UID(fmt.Sprintf("run-%d", i)), Kind: ledger.KindBackup, Name: fmt.Sprintf("run-%d", i),
			Namespaces: []string{fmt.Sprintf("n%d", i)}, Since: start,
		})
	}
	for i := range queued {
		b := &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{
			Namespace: "velero", Name: fmt.Sprintf("b%d", i), UID: types.UID(fmt.Sprintf("uid-%d", i)), CreationTimestamp: metav1.NewTime(start),
			Annotations: map[string]string{
				"holdfast.io/queue-sequence": fmt.Sprint(i + 1), "holdfast.io/priority": []string{"low", "normal", "high"}[i%3],
			},
		}}
		b.Status.Phase = velerov1.BackupPhaseQueued
		for j := range 3 {
			b.Spec.IncludedNamespaces = append(b.Spec.IncludedNamespaces, fmt.Sprintf("n%d", (i*(j+7)+j)%(queued+running)))
		}
		if i%100 == 0 {
			b.Spec.IncludedNamespaces = []string{"team-*"}
		}
		backups = append(backups, b)
	}
	return entries, backups
}

func crowdScheduler(rules queue.Validator) *queue.Scheduler {
	return newQueue(nil, &crowdLimits, withValidator(rules), func(c *queue.Config) { c.Ageing = ageing })
}

// The decisions over what a pass has read, with the order: no call of the API.
func BenchmarkPass(b *testing.B) {
	for _, queued := range []int{100, 1_000, 10_000} {
		b.Run(fmt.Sprint(queued), func(b *testing.B) {
			entries, backups := newCrowd(queued)
			s := crowdScheduler(&rules{})
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				v := queue.ViewOf(crowdLimits, entries, backups)
				b.StartTimer()
				require.NoError(b, s.Admit(b.Context(), v))
			}
		})
	}
}

// What runs is found by namespace: no job may be overlooked that the ledger would find.
func TestAnObstacleIsWhatTheLedgerWouldFind(t *testing.T) {
	lists := [][]string{nil, {"a"}, {"b"}, {"a", "b"}, {"c"}, ledger.AllBut(nil), ledger.AllBut([]string{"a"}), ledger.AllBut([]string{"a", "b"})}
	for _, first := range lists {
		for _, second := range lists {
			running := []ledger.Entry{{UID: "1", Name: "first", Namespaces: first}, {UID: "2", Name: "second", Namespaces: second}}
			for _, wanted := range lists {
				job := ledger.Entry{Namespaces: wanted}
				free := len(running[0].Blocks(&job)) == 0 && len(running[1].Blocks(&job)) == 0
				err := queue.ObstacleFor(running, wanted)
				require.Equal(t, free, err == nil, "%v beside %v and %v: %v", wanted, first, second, err)
			}
		}
	}
}

// A change that gives every backup in a long queue a new reason is reported at a bounded rate, not
// all at once.
func TestALongQueueIsToldLittleByLittle(t *testing.T) {
	entries, backups := newCrowd(1_000)
	s := crowdScheduler(&rules{})
	require.NoError(t, s.Admit(t.Context(), queue.ViewOf(crowdLimits, entries, backups)))
	require.Positive(t, s.Told())
	require.LessOrEqual(t, s.Told(), 100)
}
