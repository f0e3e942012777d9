package cleanup_test

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cleanup"
)

// bed is a namespace that services were uninstalled from.
type bed struct {
	*kubetest.Server
	cleanup.Config
}

const (
	path  = "/api/v1/namespaces/velero/"
	lease = "/apis/coordination.k8s.io/v1/namespaces/velero/leases/"
)

// made is what services make, in the order in which it is removed.
var made = []string{"Lease/holdfast-duty-deletion", "Lease/runner-1", "ConfigMap/holdfast-queue", "Secret/holdfast-artifact-key"}

func startBed(t *testing.T) *bed {
	t.Helper()
	b := &bed{Server: kubetest.Start(t)}
	b.Serve("coordination.k8s.io/v1", "leases", "Lease", true)
	config := b.Server.Config()
	config.ContentType = runtime.ContentTypeJSON
	c, err := client.New(config, client.Options{Scheme: kube.Scheme()})
	require.NoError(t, err)
	require.NoError(t, c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "velero"}}))
	b.Config = cleanup.Config{Client: c, Namespace: "velero", Services: []string{"backup-runner"}, Clock: clock.RealClock{}, Log: slog.New(slog.DiscardHandler)}
	for _, object := range []client.Object{
		&coordinationv1.Lease{ObjectMeta: objectMeta("runner-1", "holdfast.io/lease", "instance"), Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To("")}},
		&coordinationv1.Lease{ObjectMeta: objectMeta("holdfast-duty-deletion"), Spec: heldFor(time.Hour, time.Now().Add(-2*time.Hour))},
		&coordinationv1.Lease{ObjectMeta: objectMeta("of-another"), Spec: heldFor(time.Hour, time.Now())},
		&corev1.ConfigMap{ObjectMeta: objectMeta("holdfast-queue")}, &corev1.ConfigMap{ObjectMeta: objectMeta("holdfast-settings")},
		&corev1.Secret{ObjectMeta: objectMeta("holdfast-artifact-key")}, &corev1.Secret{ObjectMeta: objectMeta("cloud-credentials")},
		newPod("nats", corev1.PodRunning), newPod("cleanup", corev1.PodRunning), newPod("backup-runner", corev1.PodFailed),
	} {
		require.NoError(t, c.Create(t.Context(), object))
	}
	return b
}

func objectMeta(name string, label ...string) metav1.ObjectMeta {
	m := metav1.ObjectMeta{Namespace: "velero", Name: name}
	if len(label) > 0 {
		m.Labels = map[string]string{label[0]: label[1]}
	}
	return m
}

func newPod(component string, phase corev1.PodPhase) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: objectMeta(component+"-"+strings.ToLower(string(phase)), "app.kubernetes.io/component", component), Status: corev1.PodStatus{Phase: phase}}
	p.Labels["app.kubernetes.io/part-of"] = "holdfast"
	return p
}

func heldFor(d time.Duration, since time.Time) coordinationv1.LeaseSpec {
	return coordinationv1.LeaseSpec{
		HolderIdentity: ptr.To("someone"), LeaseDurationSeconds: ptr.To(int32(d / time.Second)), RenewTime: ptr.To(metav1.NewMicroTime(since)),
	}
}

// onLook has do called before the Pods are listed, with how often that was done before.
func (b *bed) onLook(do func(looks int64)) {
	var looks atomic.Int64
	b.Fail(func(r *http.Request, _ map[string]any) (int, bool) {
		if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/pods") {
			do(looks.Add(1) - 1)
		}
		return 0, false
	})
}

func (b *bed) deletedNames() []string { return b.Requests("DELETE ") }

func TestWhatServicesMadeIsRemovedAndNothingElse(t *testing.T) {
	b := startBed(t)
	removed, err := cleanup.Run(t.Context(), b.Config)
	require.NoError(t, err)
	require.Equal(t, made, removed)
	require.Len(t, b.deletedNames(), len(made))
	for _, stays := range []string{path + "configmaps/holdfast-settings", path + "secrets/cloud-credentials", lease + "of-another", path + "pods/nats-running"} {
		require.NotNil(t, b.Object(stays), stays)
	}
	removed, err = cleanup.Run(t.Context(), b.Config)
	require.NoError(t, err, "there is nothing left to remove")
	require.Empty(t, removed)
}

func TestNothingIsRemovedWhileAServiceRuns(t *testing.T) {
	for name, object := range map[string]client.Object{
		"Pod/backup-runner-running":    newPod("backup-runner", corev1.PodRunning),
		"Pod/backup-runner-pending":    newPod("backup-runner", corev1.PodPending),
		"Lease/runner-2":               &coordinationv1.Lease{ObjectMeta: objectMeta("runner-2", "holdfast.io/lease", "instance"), Spec: heldFor(time.Hour, time.Now())},
		"Lease/holdfast-duty-schedule": &coordinationv1.Lease{ObjectMeta: objectMeta("holdfast-duty-schedule"), Spec: heldFor(time.Hour, time.Now())},
	} {
		t.Run(name, func(t *testing.T) {
			b := startBed(t)
			require.NoError(t, b.Client.Create(t.Context(), object))
			ctx, cancel := context.WithCancel(t.Context())
			b.onLook(func(looks int64) {
				if looks == 2 {
					cancel()
				}
			})
			removed, err := cleanup.Run(ctx, b.Config)
			var running *cleanup.RunningError
			require.ErrorAs(t, err, &running)
			require.Equal(t, []string{name}, running.Running)
			require.Empty(t, removed)
			require.Empty(t, b.deletedNames())
		})
	}
}

func TestPodsThatEndAndLeasesThatAreReleasedAreWaitedFor(t *testing.T) {
	b := startBed(t)
	require.NoError(t, b.Client.Create(t.Context(), newPod("backup-runner", corev1.PodRunning)))
	b.Change(lease+"runner-1", func(object map[string]any) {
		object["spec"] = map[string]any{"holderIdentity": "runner-1", "leaseDurationSeconds": int64(3600), "renewTime": time.Now().UTC().Format(metav1.RFC3339Micro)}
	})
	b.onLook(func(looks int64) {
		switch looks {
		case 1: // as a Pod at its end
			b.Change(lease+"runner-1", func(object map[string]any) { object["spec"] = map[string]any{"holderIdentity": ""} })
		case 2:
			b.Delete(path + "pods/backup-runner-running")
		}
	})
	removed, err := cleanup.Run(t.Context(), b.Config)
	require.NoError(t, err)
	require.Equal(t, made, removed)
}

func TestALeaseThatIsWrittenMeanwhileStays(t *testing.T) {
	b := startBed(t)
	var once atomic.Bool
	b.Fail(func(r *http.Request, _ map[string]any) (int, bool) {
		if r.Method == http.MethodDelete && once.CompareAndSwap(false, true) {
			b.Change(lease+"runner-1", func(object map[string]any) { object["spec"] = map[string]any{"holderIdentity": "runner-1"} })
		}
		return 0, false
	})
	removed, err := cleanup.Run(t.Context(), b.Config)
	require.ErrorContains(t, err, "remove Lease/runner-1")
	require.Equal(t, made[:1], removed)
	require.NotNil(t, b.Object(lease+"runner-1"))
	require.NotNil(t, b.Object(path+"configmaps/holdfast-queue"))
}

// The clock of a node may be ahead of, or behind, that of a service elsewhere.
func TestALeaseIsNotTakenForExpiredByAnotherClock(t *testing.T) {
	b := startBed(t)
	b.renewLease("runner-1", time.Now().Add(-5*time.Minute-30*time.Second)) // it declares five minutes
	ctx, cancel := context.WithCancel(t.Context())
	b.onLook(func(looks int64) {
		if looks == 2 {
			cancel()
		}
	})
	_, err := cleanup.Run(ctx, b.Config)
	require.ErrorAs(t, err, new(*cleanup.RunningError))
}

func TestAnAPIServerThatIsAwayForAMomentIsNoReasonToStop(t *testing.T) {
	b := startBed(t)
	var failed sync.Map // once for each request
	b.Fail(func(r *http.Request, _ map[string]any) (int, bool) {
		if _, again := failed.LoadOrStore(r.Method+r.URL.Path, true); !again {
			return http.StatusServiceUnavailable, false
		}
		return 0, false
	})
	removed, err := cleanup.Run(t.Context(), b.Config)
	require.NoError(t, err)
	require.Equal(t, made, removed)
}

// Services whose rights went with them could not release their Leases, which declare five minutes.
func TestLeasesThatNobodyRenewsAreNotWaitedForUntilTheyExpire(t *testing.T) {
	b := startBed(t)
	clk := clocktesting.NewFakeClock(time.Now())
	b.Clock = clk
	first := clk.Now()
	for _, name := range []string{"runner-1", "runner-2"} {
		require.NoError(t, client.IgnoreAlreadyExists(b.Client.Create(t.Context(), &coordinationv1.Lease{ObjectMeta: objectMeta(name, "holdfast.io/lease", "instance")})))
		b.renewLease(name, first)
	}
	done := make(chan error, 1)
	go func() {
		_, err := cleanup.Run(t.Context(), b.Config)
		done <- err
	}()
	renewals := 4 // of the instance that lives for a while
	for {
		select {
		case err := <-done:
			require.NoError(t, err)
			passed := clk.Since(first)
			require.Greater(t, passed, 4*15*time.Second+45*time.Second)
			require.Less(t, passed, 3*time.Minute)
			return
		default:
		}
		if !clk.HasWaiters() {
			continue
		}
		clk.Step(time.Second)
		if at := first.Add(time.Duration(5-renewals) * 15 * time.Second); renewals > 0 && !clk.Now().Before(at) {
			renewals--
			b.renewLease("runner-2", clk.Now())
		}
	}
}

func (b *bed) renewLease(name string, now time.Time) {
	b.Change(lease+name, func(object map[string]any) {
		object["spec"] = map[string]any{"holderIdentity": name, "leaseDurationSeconds": int64(300), "renewTime": now.UTC().Format(metav1.RFC3339Micro)}
	})
}
