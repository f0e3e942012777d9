package control_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/kube/podexec"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/control"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/moverpod"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/outcome"
)

const (
	server         = "velero"
	prepareTimeout = 30 * time.Minute
)

// bed is an API server with an application, a clock, and what kubelets do.
type bed struct {
	t          *testing.T
	client     client.Client
	clock      *clocktesting.FakeClock
	controller *control.Controller
	registry   *prometheus.Registry

	refuse func(client.Object) error // creates
	log    string                    // of movers
	answer func(command []string, stdout io.Writer) (stderr string, err error)
	stamps bool // new objects have the time of their creation

	mu     sync.Mutex
	events []string
}

func (b *bed) Eventf(_, _ runtime.Object, _, reason, _, _ string, _ ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.events = append(b.events, reason)
}

func (b *bed) TailLog(context.Context, *corev1.Pod) ([]byte, error) {
	if b.log == "" {
		return nil, errors.New("there is no kubelet")
	}
	return []byte(b.log), nil
}

func (b *bed) Stream(_ context.Context, cmd *podexec.Command, stdout io.Writer) (string, error) {
	return b.answer(append([]string{cmd.Namespace, cmd.Pod, cmd.Container}, cmd.Args...), stdout)
}

func newBed(t *testing.T, objects ...client.Object) *bed {
	b := &bed{t: t, clock: clocktesting.NewFakeClock(time.Unix(1_700_000_000, 0))}
	objects = append(objects,
		&velerov1.BackupStorageLocation{
			ObjectMeta: metav1.ObjectMeta{Namespace: server, Name: "default"},
			Spec: velerov1.BackupStorageLocationSpec{
				Provider: "aws", Config: map[string]string{"region": "r"}, StorageType: velerov1.StorageType{ObjectStorage: &velerov1.ObjectStorageLocation{Bucket: "b"}},
				Credential: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "keys"}, Key: "cloud"},
			},
		},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: server, Name: "keys"}, Data: map[string][]byte{"cloud": []byte("[default]"), "other": []byte("private")}},
		&corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data-web-0", UID: "claim-uid"}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pv-1"},
		},
		&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-1"}, Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{}}}},
		newPod("web-0", "node-1"),
	)
	b.client = fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Delete: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			grace := (&client.DeleteOptions{}).ApplyOptions(opts).GracePeriodSeconds
			if grace != nil && *grace == 0 { // the API server does not wait for the kubelet then
				o.SetFinalizers(nil)
				return w.Update(ctx, o)
			}
			return w.Delete(ctx, o, opts...)
		},
		Create: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if b.refuse != nil {
				if err := b.refuse(o); err != nil {
					return err
				}
			}
			if o.GetUID() == "" {
				o.SetUID(types.UID(o.GetName() + "-uid"))
			}
			if b.stamps && o.GetCreationTimestamp().Time.IsZero() {
				o.SetCreationTimestamp(metav1.NewTime(b.clock.Now()))
			}
			return w.Create(ctx, o, opts...)
		},
	}).Build()
	b.restart()
	return b
}

// restart replaces the controller by one that knows nothing.
func (b *bed) restart() { b.configure(func(*control.Config) {}) }

func (b *bed) configure(change func(*control.Config)) {
	b.registry = prometheus.NewRegistry()
	counts, err := control.NewMetrics(b.registry)
	require.NoError(b.t, err)
	c := control.Config{
		Reader: b.client, Client: b.client, Logs: b, Commands: b, Events: b, KubeletRoot: "/var/lib/kubelet", PerNode: 2, Total: 20, PrepareTimeout: prepareTimeout,
		Movers: moverpod.Settings{Namespace: server, Image: "mover:1", ServiceAccount: "mover"}, Metrics: counts, Clock: b.clock, Log: slog.New(slog.DiscardHandler),
	}
	change(&c)
	b.controller = control.New(c)
}

// newPod is a running Pod with a claim and an emptyDir.
func newPod(name, node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name + "-uid")},
		Spec: corev1.PodSpec{NodeName: node, Volumes: []corev1.Volume{
			{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data-" + name}}},
			{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

// newBackup is a request for a volume of Pod web-0.
func newBackup(name, volume string) *velerov1.PodVolumeBackup {
	return &velerov1.PodVolumeBackup{
		ObjectMeta: metav1.ObjectMeta{Namespace: server, Name: name, UID: types.UID(name + "-uid"), CreationTimestamp: metav1.NewTime(time.Unix(1_700_000_000, 0))},
		Spec: velerov1.PodVolumeBackupSpec{
			Node: "node-1", Pod: corev1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: "web-0", UID: "web-0-uid"}, Volume: volume,
			BackupStorageLocation: "default", UploaderType: "kopia",
		},
	}
}

// newRestore is a request to fill a volume of Pod web-0.
func newRestore(name, volume string) *velerov1.PodVolumeRestore {
	return &velerov1.PodVolumeRestore{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: server, Name: name, UID: types.UID(name + "-uid"), CreationTimestamp: metav1.NewTime(time.Unix(1_700_000_000, 0)),
			OwnerReferences: []metav1.OwnerReference{{Kind: "Restore", Name: "r", UID: "restore-uid"}},
		},
		Spec: velerov1.PodVolumeRestoreSpec{
			Pod: corev1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: "web-0", UID: "web-0-uid"}, Volume: volume,
			BackupStorageLocation: "default", UploaderType: "kopia", SnapshotID: "snapshot-1", SourceNamespace: "source",
		},
	}
}

// step has the controller look at a request until it changes nothing more, and returns the pause that it asks for.
func (b *bed) step(o client.Object) (after time.Duration) {
	b.t.Helper()
	for range 10 {
		before := b.version(o)
		result, err := b.controller.Reconcile(b.t.Context(), o, client.ObjectKeyFromObject(o))
		require.NoError(b.t, err)
		after = result.RequeueAfter
		if b.version(o) == before {
			break
		}
	}
	err := b.client.Get(b.t.Context(), client.ObjectKeyFromObject(o), o)
	require.NoError(b.t, client.IgnoreNotFound(err))
	return after
}

// version changes with the request and its mover.
func (b *bed) version(o client.Object) string {
	b.t.Helper()
	found := ""
	for _, x := range []client.Object{o.DeepCopyObject().(client.Object), &corev1.Pod{}} {
		if err := b.client.Get(b.t.Context(), client.ObjectKeyFromObject(o), x); err == nil {
			found += x.GetResourceVersion() + " "
		}
	}
	return found
}

// mover is the mover Pod of a request; nil if there is none.
func (b *bed) mover(name string) *corev1.Pod {
	b.t.Helper()
	pod := &corev1.Pod{}
	err := b.client.Get(b.t.Context(), client.ObjectKey{Namespace: server, Name: name}, pod)
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(b.t, err)
	return pod
}

func (b *bed) secret(name string) *corev1.Secret {
	b.t.Helper()
	secret := &corev1.Secret{}
	err := b.client.Get(b.t.Context(), client.ObjectKey{Namespace: server, Name: name}, secret)
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(b.t, err)
	return secret
}

func (b *bed) update(o client.Object, change func()) {
	b.t.Helper()
	require.NoError(b.t, b.client.Get(b.t.Context(), client.ObjectKeyFromObject(o), o))
	change()
	require.NoError(b.t, b.client.Update(b.t.Context(), o))
}

// setStatus does what the kubelet does with a mover Pod.
func (b *bed) setStatus(name string, status corev1.PodStatus) {
	b.t.Helper()
	pod := b.mover(name)
	require.NotNil(b.t, pod, "there is no mover Pod")
	pod.Status = status
	require.NoError(b.t, b.client.Status().Update(b.t.Context(), pod))
}

func (b *bed) run(name string) { b.setStatus(name, corev1.PodStatus{Phase: corev1.PodRunning}) }

func (b *bed) wait(name, reason string) {
	b.setStatus(name, corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{
		{Name: moverpod.Container, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "because"}}},
	}})
}

// loseNode has a mover be deleted and its kubelet say nothing, and returns until when it may. It is that time then.
func (b *bed) loseNode(name string) time.Time {
	b.t.Helper()
	pod := b.mover(name)
	b.update(pod, func() { pod.Finalizers = []string{"test/kubelet"} })
	require.NoError(b.t, b.client.Delete(b.t.Context(), pod))
	until := b.mover(name).DeletionTimestamp.Add(5 * time.Minute)
	b.clock.SetTime(until)
	return until
}

// end ends a mover with a result.
func (b *bed) end(name string, result outcome.Result) {
	b.t.Helper()
	text, err := json.Marshal(result)
	require.NoError(b.t, err)
	phase, code := corev1.PodSucceeded, int32(0)
	if result.Phase != outcome.Completed {
		phase, code = corev1.PodFailed, 1
	}
	b.terminate(name, phase, corev1.ContainerStateTerminated{Reason: "Error", ExitCode: code, Message: string(text)})
}

func (b *bed) terminate(name string, phase corev1.PodPhase, how corev1.ContainerStateTerminated) {
	b.t.Helper()
	b.setStatus(name, corev1.PodStatus{Phase: phase, ContainerStatuses: []corev1.ContainerStatus{{Name: moverpod.Container, State: corev1.ContainerState{Terminated: &how}}}})
}

// requireEnd checks that a backup ended, and that nothing is left of its mover.
func (b *bed) requireEnd(r *velerov1.PodVolumeBackup, phase velerov1.PodVolumePhase, message string) {
	b.t.Helper()
	require.Equal(b.t, phase, r.Status.Phase, r.Status.Message)
	require.Contains(b.t, r.Status.Message, message)
	require.NotNil(b.t, r.Status.CompletionTimestamp)
	require.NotNil(b.t, r.Status.StartTimestamp)
	b.requireNoMover(r.Name)
}

func (b *bed) requireNoMover(name string) {
	b.t.Helper()
	require.Nil(b.t, b.mover(name))
	require.Nil(b.t, b.secret(name))
}

// refusePods has the API server answer the creation of Pods with an error.
func (b *bed) refusePods(err error) {
	b.refuse = func(o client.Object) error {
		if _, ok := o.(*corev1.Pod); ok {
			return err
		}
		return nil
	}
}

// setPod changes the status of Pod web-0.
func (b *bed) setPod(change func(*corev1.Pod)) {
	b.t.Helper()
	pod := newPod("web-0", "")
	require.NoError(b.t, b.client.Get(b.t.Context(), client.ObjectKeyFromObject(pod), pod))
	change(pod)
	require.NoError(b.t, b.client.Status().Update(b.t.Context(), pod))
}
