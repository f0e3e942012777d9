package nativesnapshot_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/nativesnapshot"
	"github.com/holdfast-io/holdfast/pkg/kube"
)

var (
	refused = &url.Error{Op: "Get", URL: "https://cluster", Err: syscall.ECONNREFUSED}
	secrets = schema.GroupResource{Resource: "secrets"}
)

// newFailingReader is a cluster with a location and its Secret; fail returns the error of each read.
func newFailingReader(fail func(client.Object) error) client.Reader {
	return fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "s"}, Data: map[string][]byte{"k": []byte("sesame")}},
		&velerov1.VolumeSnapshotLocation{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "main"},
			Spec: velerov1.VolumeSnapshotLocationSpec{Provider: "known", Credential: &corev1.SecretKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: "s"}, Key: "k", Optional: ptr.To(false)}}},
	).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
			if err := fail(into); err != nil {
				return err
			}
			return c.Get(ctx, key, into, opts...)
		},
	}).Build()
}

// TestALocationIsOpenedAcrossAnOutage loses each of both reads twice.
func TestALocationIsOpenedAcrossAnOutage(t *testing.T) {
	for name, outage := range map[string]error{
		"refused": refused, "overloaded": apierrors.NewTooManyRequests("later", 0),
		"no storage": apierrors.NewInternalError(errors.New("etcdserver: leader changed")), "restarting": apierrors.NewServiceUnavailable("soon"),
	} {
		t.Run(name, func(t *testing.T) {
			lost := map[string]int{}
			reader := newFailingReader(func(o client.Object) error {
				kind := fmt.Sprintf("%T", o)
				if lost[kind]++; lost[kind] > 2 {
					return nil
				}
				return outage
			})
			o := &nativesnapshot.Opener{Reader: nativesnapshot.RetryingReader(reader, clock.RealClock{}, slog.New(slog.DiscardHandler)), Namespace: "velero", Session: &locationSession{}, WorkDir: t.TempDir()}
			_, err := o.Open(t.Context(), "main")
			require.NoError(t, err)
			require.Equal(t, map[string]int{"*v1.VolumeSnapshotLocation": 3, "*v1.Secret": 3}, lost)
			require.NoError(t, o.Close())
		})
	}
}

func TestWhatTheServerSaysIsNotAskedAgain(t *testing.T) {
	for name, verdict := range map[string]error{
		"absent": apierrors.NewNotFound(secrets, "s"), "forbidden": apierrors.NewForbidden(secrets, "s", errors.New("no")),
	} {
		t.Run(name, func(t *testing.T) {
			asked := 0
			reader := nativesnapshot.RetryingReader(newFailingReader(func(client.Object) error { asked++; return verdict }), clock.RealClock{}, slog.New(slog.DiscardHandler))
			require.ErrorIs(t, reader.Get(t.Context(), client.ObjectKey{Name: "s"}, &corev1.Secret{}), verdict)
			require.Equal(t, 1, asked)
		})
	}
}

// leaping is a clock whose timers fire at once: their time has passed then.
type leaping struct{ *clocktesting.FakeClock }

func (l leaping) NewTimer(d time.Duration) clock.Timer {
	t := l.FakeClock.NewTimer(d)
	l.Step(d)
	return t
}

func TestRetriesEnd(t *testing.T) {
	t.Run("with the context", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		reader := nativesnapshot.RetryingReader(newFailingReader(func(client.Object) error { cancel(); return refused }), clock.RealClock{}, slog.New(slog.DiscardHandler))
		require.ErrorIs(t, reader.Get(ctx, client.ObjectKey{Name: "s"}, &corev1.Secret{}), refused)
	})
	t.Run("with the budget", func(t *testing.T) {
		clk := leaping{clocktesting.NewFakeClock(time.Now())}
		reader := nativesnapshot.RetryingReader(newFailingReader(func(client.Object) error { clk.Step(3 * time.Minute); return refused }), clk, slog.New(slog.DiscardHandler))
		require.ErrorIs(t, reader.Get(t.Context(), client.ObjectKey{Name: "s"}, &corev1.Secret{}), refused)
	})
}
