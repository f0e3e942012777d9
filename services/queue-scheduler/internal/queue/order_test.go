package queue_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
	"github.com/holdfast-io/holdfast/pkg/job/validate"
	"github.com/holdfast-io/holdfast/services/queue-scheduler/internal/queue"
)

const ageing = 30 * time.Minute

// waitingFor is a queued backup that has waited for age.
func waitingFor(sequence int, class string, age time.Duration, namespaces ...string) queue.Waiting {
	b := &velerov1.Backup{ObjectMeta: objectMeta(strconv.Itoa(sequence), 0)}
	b.CreationTimestamp = metav1.NewTime(start.Add(-age))
	b.Annotations = map[string]string{"holdfast.io/queue-sequence": strconv.Itoa(sequence), "holdfast.io/priority": class}
	return queue.Waiting{Backup: b, Namespaces: namespaces}
}

func waitingNames(waiting []queue.Waiting) (out []string) {
	for _, w := range waiting {
		out = append(out, w.Backup.Name)
	}
	return out
}

func TestOrder(t *testing.T) {
	for name, tc := range map[string]struct {
		waiting []queue.Waiting
		want    []string
	}{
		"nothing": {nil, nil},
		"numbers": {[]queue.Waiting{waitingFor(2, "normal", 0, "a"), waitingFor(10, "normal", 0, "b"), waitingFor(1, "normal", 0, "c")}, []string{"1", "2", "10"}},
		"classes": {[]queue.Waiting{waitingFor(1, "low", 0, "a"), waitingFor(2, "normal", 0, "b"), waitingFor(3, "high", 0, "c")}, []string{"3", "2", "1"}},
		"not past what it overlaps with": {
			[]queue.Waiting{waitingFor(1, "low", 0, "a"), waitingFor(2, "low", 0, "b"), waitingFor(3, "high", 0, "b", "c")}, []string{"2", "3", "1"},
		},
		"through another": {
			[]queue.Waiting{waitingFor(1, "low", 0, "a"), waitingFor(2, "low", 0, "a", "b"), waitingFor(3, "low", 0, "z"), waitingFor(4, "high", 0, "b")},
			[]string{"1", "2", "4", "3"},
		},
		"not past a whole cluster": {
			[]queue.Waiting{waitingFor(1, "low", 0, "a"), waitingFor(2, "low", 0, "*"), waitingFor(3, "low", 0, "b"), waitingFor(4, "high", 0, "c")},
			[]string{"1", "2", "4", "3"},
		},
		"a whole cluster past nobody": {
			[]queue.Waiting{waitingFor(1, "low", 0, "a"), waitingFor(2, "low", 0), waitingFor(3, "high", 0, "*")}, []string{"1", "2", "3"},
		},
		"without any namespace": {[]queue.Waiting{waitingFor(1, "low", 0, "a"), waitingFor(2, "high", 0)}, []string{"2", "1"}},
		"aged":                  {[]queue.Waiting{waitingFor(1, "low", 2*ageing, "a"), waitingFor(2, "high", 0, "b")}, []string{"1", "2"}},
		"half aged":             {[]queue.Waiting{waitingFor(1, "low", 2*ageing-1, "a"), waitingFor(2, "high", 0, "b")}, []string{"2", "1"}},
		"a bad class is normal": {[]queue.Waiting{waitingFor(1, "low", 0, "a"), waitingFor(2, "urgent", 0, "b")}, []string{"2", "1"}},
	} {
		t.Run(name, func(t *testing.T) {
			queue.Order(tc.waiting, ageing, start)
			require.Equal(t, tc.want, waitingNames(tc.waiting))
		})
	}
}

// Beside the definition, worked out in another way: the class of a backup is the highest of those
// behind it that wait for it, directly or through others.
func TestOrderFollowsItsDefinition(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	inherited := 0
	for range 3_000 {
		waiting := make([]queue.Waiting, random.IntN(12))
		for i := range waiting {
			namespaces := make([]string, random.IntN(3))
			for j := range namespaces {
				namespaces[j] = fmt.Sprintf("n%d", random.IntN(6))
			}
			slices.Sort(namespaces)
			if namespaces = slices.Compact(namespaces); random.IntN(12) == 0 {
				namespaces = []string{ledger.All}
			}
			class := []string{"low", "normal", "high"}[random.IntN(3)]
			waiting[i] = waitingFor(i+1, class, time.Duration(random.IntN(3))*ageing, namespaces...)
		}
		own := make([]validate.Priority, len(waiting))
		for i, w := range waiting {
			class, err := validate.PriorityOf(w.Backup.Annotations)
			require.NoError(t, err)
			own[i] = class.AgedClass(start.Sub(w.Backup.CreationTimestamp.Time), ageing)
		}
		type ranked struct {
			name  string
			class validate.Priority
		}
		want := make([]ranked, len(waiting))
		for i := range waiting {
			want[i] = ranked{waiting[i].Backup.Name, own[i]}
			for _, j := range waitsOn(waiting, i) {
				want[i].class = max(want[i].class, own[j])
			}
			if want[i].class > own[i] {
				inherited++
			}
		}
		slices.SortStableFunc(want, func(a, b ranked) int { return cmp.Compare(b.class, a.class) })
		random.Shuffle(len(waiting), func(i, j int) { waiting[i], waiting[j] = waiting[j], waiting[i] })
		queue.Order(waiting, ageing, start)
		for i := range waiting {
			require.Equal(t, want[i].name, waiting[i].Backup.Name)
		}
	}
	require.Greater(t, inherited, 1000, "hardly any class was lent: the test shows nothing")
}

// waitsOn lists those behind i that wait for it.
func waitsOn(waiting []queue.Waiting, i int) []int {
	found := []int{i}
	for n := 0; n < len(found); n++ {
		for j := found[n] + 1; j < len(waiting); j++ {
			if !slices.Contains(found, j) && len(ledger.Overlap(waiting[found[n]].Namespaces, waiting[j].Namespaces)) > 0 {
				found = append(found, j)
			}
		}
	}
	return found
}
