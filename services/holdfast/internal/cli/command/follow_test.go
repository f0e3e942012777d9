package command_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/command"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newTarget() *velerov1.Backup {
	return &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "b"}}
}

// The server fails every other read.
func TestAServerThatDoesNotAnswerIsWaitedFor(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Unix(0, 0))
	reads := 0
	base := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(newTarget()).Build()
	c := interceptor.NewClient(base, interceptor.Funcs{
		Get: func(ctx context.Context, w client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			go clk.Step(time.Second) // the read is over before the next tick is waited for, or the tick is kept
			if reads++; reads%2 == 1 {
				return apierrors.NewServiceUnavailable("restarting")
			}
			return w.Get(ctx, key, obj, opts...)
		},
	})
	seen := 0
	err := command.WaitUntil(t.Context(), c, clk, newTarget(), func() (bool, error) { seen++; return seen == 2, nil })
	require.NoError(t, err)
	require.Equal(t, 4, reads)
}

func TestSeenCanFail(t *testing.T) {
	stop := errors.New("stop")
	c := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(newTarget()).Build()
	err := command.WaitUntil(t.Context(), c, clocktesting.NewFakeClock(time.Unix(0, 0)), newTarget(), func() (bool, error) { return false, stop })
	require.ErrorIs(t, err, stop)
}

func TestProgressOnATerminalRewritesItsLine(t *testing.T) {
	var out bytes.Buffer
	clk := clocktesting.NewFakeClock(time.Unix(0, 0))
	p := command.NewProgress(&command.Global{IOStreams: genericiooptions.IOStreams{Out: &out}, Live: true, Clock: clk})
	p.Show("", 0, 0)
	clk.Step(3 * time.Second)
	p.Show("InProgress", 4, 9)
	p.End()
	p.End()
	require.Equal(t, "\r\x1b[KNew (0s)\r\x1b[KInProgress 4/9 items (3s)\n", out.String())
}

func TestProgressInAFileIsSparse(t *testing.T) {
	var out bytes.Buffer
	clk := clocktesting.NewFakeClock(time.Unix(0, 0))
	p := command.NewProgress(&command.Global{IOStreams: genericiooptions.IOStreams{Out: &out}, Clock: clk})
	p.Show("InProgress", 1, 9)
	p.Show("InProgress", 2, 9) // too soon
	clk.Step(6 * time.Second)
	p.Show("InProgress", 3, 9)
	p.Show("Completed", 9, 9)
	p.End()
	require.Equal(t, "InProgress 1/9 items\nInProgress 3/9 items\nCompleted 9/9 items\n", out.String())
}
