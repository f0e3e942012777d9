package metrics

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/kube"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestCensus(t *testing.T) {
	m, err := New(prometheus.NewRegistry())
	require.NoError(t, err)
	restore := func(namespace string) *velerov1.Restore {
		return &velerov1.Restore{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "r"}}
	}
	c := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(restore("velero"), restore("elsewhere")).Build()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- m.Census(ctx, c, "velero", clock.RealClock{}) }()
	require.Eventually(t, func() bool { return testutil.ToFloat64(m.restores) == 1 }, time.Minute, 10*time.Millisecond)
	cancel()
	require.NoError(t, <-done)
}
