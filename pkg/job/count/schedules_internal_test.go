package count

import (
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/kube"
)

const namespace = "velero"

func newSchedule(name string) *velerov1.Schedule {
	return &velerov1.Schedule{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

func newCachedClient(objects ...client.Object) client.Client {
	return fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(objects...).Build()
}

// A series exists at zero for each Schedule, also of a metric that comes later, and goes with it.
func TestSeriesComeAndGoWithTheirSchedule(t *testing.T) {
	s := NewSchedules(prometheus.NewRegistry(), newCachedClient(), namespace)
	early := s.Counter("early_total", "Early.")
	require.Equal(t, 1, testutil.CollectAndCount(early.vec), "of jobs without a schedule")
	s.noteSchedule("daily")
	s.noteSchedule("weekly")
	late := s.Counter("late_total", "Late.")
	durations := s.newDurations("late_seconds", "Late.")
	csi := s.perBackup("late_snapshots_total", "Late.")
	all := []prometheus.Collector{early.vec, late.vec, durations.vec, csi.vec}
	for _, c := range all {
		require.Equal(t, 3, testutil.CollectAndCount(c))
	}
	early.Inc("daily")
	s.noteSchedule("daily")
	require.InDelta(t, 1, testutil.ToFloat64(early.vec.WithLabelValues("daily")), 0, "an event about a schedule changes no number")
	s.removeSchedule("daily")
	s.removeSchedule("never was")
	for _, c := range all {
		require.Equal(t, 2, testutil.CollectAndCount(c))
	}
	require.NoError(t, s.Err())
}

// A job that ends in the first moments of a process counts for its Schedule, whose other series
// begin with it.
func TestAScheduleThatWasNotSeenYetIsRead(t *testing.T) {
	s := NewSchedules(prometheus.NewRegistry(), newCachedClient(newSchedule("daily")), namespace)
	one, other := s.Counter("one_total", "One."), s.Counter("other_total", "Other.")
	one.Inc("daily")
	require.InDelta(t, 1, testutil.ToFloat64(one.vec.WithLabelValues("daily")), 0)
	require.Equal(t, 2, testutil.CollectAndCount(other.vec))
}

// Jobs that end while their Schedule is deleted do not bring its series back: all of them are
// counted, at last for none.
func TestASeriesThatWasRemovedStaysSo(t *testing.T) {
	c := newCachedClient(newSchedule("daily"))
	s := NewSchedules(prometheus.NewRegistry(), c, namespace)
	counter := s.Counter("jobs_total", "Jobs.")
	begun := make(chan struct{}, 1)
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for range 50 {
				counter.Inc("daily")
				select {
				case begun <- struct{}{}:
				default:
				}
			}
		})
	}
	<-begun
	require.NoError(t, c.Delete(t.Context(), newSchedule("daily")))
	s.removeSchedule("daily")
	group.Wait()
	counter.Inc("daily")
	require.Equal(t, 1, testutil.CollectAndCount(counter.vec))
	require.GreaterOrEqual(t, testutil.ToFloat64(counter.vec.WithLabelValues("")), 1.0)
}
