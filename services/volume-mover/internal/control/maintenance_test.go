package control_test

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/control"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/moverpod"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/outcome"
)

// repositoryBegin is when the repositories of tests were made.
var repositoryBegin = metav1.NewTime(time.Unix(1_700_000_000, 0))

func newRepository(namespace string, change ...func(*velerov1.BackupRepository)) *velerov1.BackupRepository {
	r := &velerov1.BackupRepository{
		ObjectMeta: metav1.ObjectMeta{Namespace: server, Name: namespace + "-default-kopia", UID: "repository-uid", CreationTimestamp: repositoryBegin},
		Spec:       velerov1.BackupRepositorySpec{VolumeNamespace: namespace, BackupStorageLocation: "default", RepositoryType: "kopia"},
		Status:     velerov1.BackupRepositoryStatus{Phase: velerov1.BackupRepositoryPhaseReady},
	}
	for _, c := range change {
		c(r)
	}
	return r
}

func newMaintenanceBed(t *testing.T, objects ...client.Object) *bed {
	b := newBed(t, append(objects, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})...)
	b.configure(func(c *control.Config) { c.MaintenanceInterval, c.FullMaintenanceInterval = time.Hour, 24*time.Hour })
	return b
}

// look has the controller look at the repositories once, after a while. It returns how many it has maintained then.
func (b *bed) look(after time.Duration) (running int) {
	b.t.Helper()
	b.clock.Step(after)
	running, err := b.controller.MaintainDue(b.t.Context())
	require.NoError(b.t, err)
	return running
}

// maintainers are the mover Pods that maintain repositories. The API server would have set when they were made.
func (b *bed) maintainers() []corev1.Pod {
	b.t.Helper()
	pods := &corev1.PodList{}
	require.NoError(b.t, b.client.List(b.t.Context(), pods, client.MatchingLabels{moverpod.LabelMover: moverpod.ValueMaintain}))
	for i := range pods.Items {
		if p := &pods.Items[i]; p.CreationTimestamp.IsZero() {
			b.update(p, func() { p.CreationTimestamp = metav1.NewTime(b.clock.Now()) })
		}
	}
	return pods.Items
}

// maintain has the run of the one mover that is there end.
func (b *bed) maintain(result outcome.Result) {
	b.t.Helper()
	pods := b.maintainers()
	require.Len(b.t, pods, 1)
	b.end(pods[0].Name, result)
	b.look(time.Minute)
}

func (b *bed) repository(namespace string) *velerov1.BackupRepository {
	b.t.Helper()
	r := newRepository(namespace)
	require.NoError(b.t, b.client.Get(b.t.Context(), client.ObjectKeyFromObject(r), r))
	return r
}

func TestARepositoryIsMaintainedWhenItIsDue(t *testing.T) {
	b := newMaintenanceBed(t, newRepository("shop"))
	require.Zero(t, b.look(59*time.Minute))
	require.Empty(t, b.maintainers())
	require.Equal(t, 1, b.look(time.Minute), "begins")
	pod := b.maintainers()[0]
	require.Equal(t, "repository-uid", string(pod.OwnerReferences[0].UID))
	require.Contains(t, strings.Join(pod.Spec.Containers[0].Args, " "), "--namespace shop")
	require.Contains(t, strings.Join(pod.Spec.Containers[0].Args, " "), "--full-interval 24h0m0s")
	require.Equal(t, "Pod", b.secret(pod.Name).OwnerReferences[0].Kind)
	b.restart()
	b.configure(func(c *control.Config) { c.MaintenanceInterval = time.Hour })
	b.run(pod.Name)
	require.Equal(t, 1, b.look(10*time.Minute))
	require.Len(t, b.maintainers(), 1, "it goes on, and is the only one")
	b.maintain(outcome.Result{Phase: outcome.Completed, Empty: true})
	b.requireNoMover(pod.Name)
	r := b.repository("shop") // its namespace is there, so it stays
	require.Len(t, r.Status.RecentMaintenance, 1)
	require.EqualValues(t, "Succeeded", r.Status.RecentMaintenance[0].Result)
	require.Equal(t, r.Status.RecentMaintenance[0].CompleteTimestamp, r.Status.LastMaintenanceTime)
	require.True(t, r.Status.LastMaintenanceTime.Equal(&metav1.Time{Time: b.clock.Now()}))
	require.NoError(t, testutil.GatherAndCompare(b.registry, strings.NewReader(`
# HELP velero_repo_maintenance_success_total Runs of maintenance that succeeded.
# TYPE velero_repo_maintenance_success_total counter
velero_repo_maintenance_success_total{repository_name="shop-default-kopia"} 1
`), "velero_repo_maintenance_success_total"))
	b.look(0)
	require.NoError(t, testutil.GatherAndCompare(b.registry, strings.NewReader(`
# HELP holdfast_repository_maintained_timestamp_seconds When a repository was last maintained, or made if it never was.
# TYPE holdfast_repository_maintained_timestamp_seconds gauge
holdfast_repository_maintained_timestamp_seconds{repository_name="shop-default-kopia"} 1.70000426e+09
# HELP holdfast_repository_maintenance_interval_seconds Time between two runs of maintenance of a repository.
# TYPE holdfast_repository_maintenance_interval_seconds gauge
holdfast_repository_maintenance_interval_seconds{repository_name="shop-default-kopia"} 3600
`), "holdfast_repository_maintained_timestamp_seconds", "holdfast_repository_maintenance_interval_seconds"))
	b.look(59 * time.Minute)
	require.Empty(t, b.maintainers())
	b.look(time.Minute)
	require.Len(t, b.maintainers(), 1)
}

func TestWhichRepositoriesAreMaintained(t *testing.T) {
	now := metav1.NewTime(repositoryBegin.Add(2 * time.Hour))
	failed := func(ago time.Duration) func(*velerov1.BackupRepository) {
		return func(r *velerov1.BackupRepository) {
			at := metav1.NewTime(now.Add(-ago))
			r.Status.RecentMaintenance = []velerov1.BackupRepositoryMaintenanceStatus{{Result: "Failed", StartTimestamp: &at, CompleteTimestamp: &at}}
		}
	}
	for name, tc := range map[string]struct {
		change func(*velerov1.BackupRepository)
		due    bool
	}{
		"never maintained": {func(*velerov1.BackupRepository) {}, true},
		"of restic":        {func(r *velerov1.BackupRepository) { r.Spec.RepositoryType = "restic" }, false},
		"not set up":       {func(r *velerov1.BackupRepository) { r.Status.Phase = "" }, false},
		"not ready":        {func(r *velerov1.BackupRepository) { r.Status.Phase = velerov1.BackupRepositoryPhaseNotReady }, true},
		"maintained":       {func(r *velerov1.BackupRepository) { r.Status.LastMaintenanceTime = &now }, false},
		"seldom":           {func(r *velerov1.BackupRepository) { r.Spec.MaintenanceFrequency.Duration = 3 * time.Hour }, false},
		"often":            {func(r *velerov1.BackupRepository) { r.Spec.MaintenanceFrequency.Duration = 5 * time.Minute }, true},
		"failed just now":  {failed(59 * time.Minute), false},
		"failed before":    {failed(time.Hour), true},
		"stopped": {func(r *velerov1.BackupRepository) {
			metav1.SetMetaDataAnnotation(&r.ObjectMeta, holdfast.AnnotationMaintenanceStopped, "2026-01-01T00:00:00Z")
		}, false},
		"read-only":          {func(r *velerov1.BackupRepository) { r.Spec.BackupStorageLocation = "read-only" }, false},
		"without a location": {func(r *velerov1.BackupRepository) { r.Spec.BackupStorageLocation = "gone" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newMaintenanceBed(t, newRepository("shop", tc.change), &velerov1.BackupStorageLocation{
				ObjectMeta: metav1.ObjectMeta{Namespace: server, Name: "read-only"}, Spec: velerov1.BackupStorageLocationSpec{AccessMode: velerov1.LocationModeReadOnly},
			})
			b.look(2 * time.Hour)
			require.Equal(t, tc.due, len(b.maintainers()) > 0)
		})
	}
}

func TestTwoAreMaintainedAtOnce(t *testing.T) {
	b := newMaintenanceBed(t, newRepository("a"), newRepository("b"), newRepository("shop", func(r *velerov1.BackupRepository) {
		r.CreationTimestamp = metav1.NewTime(repositoryBegin.Add(-time.Hour))
	}))
	for _, after := range []time.Duration{time.Hour, time.Minute} {
		b.look(after)
		require.Len(t, b.maintainers(), 2)
	}
	args := ""
	for _, p := range b.maintainers() {
		args += strings.Join(p.Spec.Containers[0].Args, " ")
	}
	require.Contains(t, args, "--namespace shop", "it waited longest")
}

// Another program that maintains a repository stops this until a user removes the annotation.
func TestAForeignRunStopsMaintenance(t *testing.T) {
	b := newMaintenanceBed(t, newRepository("shop"))
	b.look(time.Hour)
	b.maintain(outcome.Result{Phase: outcome.Failed, Message: "another program", Foreign: "2026-01-01T00:00:00Z"})
	r := b.repository("shop")
	require.Equal(t, "2026-01-01T00:00:00Z", r.Annotations[holdfast.AnnotationMaintenanceStopped])
	require.EqualValues(t, "Failed", r.Status.RecentMaintenance[0].Result)
	require.Equal(t, velerov1.BackupRepositoryPhaseReady, r.Status.Phase, "backups go on")
	require.Equal(t, []string{"ForeignMaintenance"}, b.events)
	b.look(48 * time.Hour)
	require.Empty(t, b.maintainers())
	b.update(r, func() { r.Annotations = nil })
	b.look(0)
	require.Len(t, b.maintainers(), 1)
}

func TestARunThatFailsIsRepeatedLater(t *testing.T) {
	for name, tc := range map[string]struct {
		pod  func(b *bed, name string)
		want string
	}{
		"no result": {func(b *bed, name string) {
			b.terminate(name, corev1.PodFailed, corev1.ContainerStateTerminated{Reason: "OOMKilled", ExitCode: 137})
		}, "OOMKilled"},
		"clocks": {func(b *bed, name string) {
			b.end(name, outcome.Result{Phase: outcome.Failed, Message: "clock skew detected"})
		}, "clock skew"},
		"no node":       {func(b *bed, _ string) { b.clock.Step(prepareTimeout) }, "did not start"},
		"invalid image": {func(b *bed, name string) { b.wait(name, "InvalidImageName") }, "InvalidImageName"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newMaintenanceBed(t, newRepository("shop"))
			b.look(time.Hour)
			tc.pod(b, b.maintainers()[0].Name)
			b.look(time.Minute)
			require.Empty(t, b.maintainers())
			r := b.repository("shop")
			require.Nil(t, r.Status.LastMaintenanceTime)
			require.Contains(t, r.Status.RecentMaintenance[0].Message, tc.want)
			b.look(59 * time.Minute)
			require.Empty(t, b.maintainers())
			b.look(time.Minute)
			require.Len(t, b.maintainers(), 1)
		})
	}
	b := newMaintenanceBed(t, newRepository("shop"))
	b.refusePods(apierrors.NewForbidden(corev1.Resource("pods"), "x", nil))
	for range 5 {
		b.look(time.Hour)
	}
	require.Len(t, b.repository("shop").Status.RecentMaintenance, 3)
	require.Contains(t, b.repository("shop").Status.RecentMaintenance[2].Message, "refused")
	b.refuse = nil
	b.look(time.Hour)
	b.maintain(outcome.Result{Phase: outcome.Failed, Unopened: true, Message: "wrong repository password"})
	require.Equal(t, velerov1.BackupRepositoryPhaseNotReady, b.repository("shop").Status.Phase)
	b.look(time.Hour)
	b.maintain(outcome.Result{Phase: outcome.Completed})
	require.Equal(t, velerov1.BackupRepositoryPhaseReady, b.repository("shop").Status.Phase)
}

// A Pod that a dead node leaves Terminating does not keep its name for ever.
func TestALostNodeDoesNotEndMaintenance(t *testing.T) {
	b := newMaintenanceBed(t, newRepository("shop"))
	b.look(time.Hour)
	pod := &b.maintainers()[0]
	b.run(pod.Name)
	lost := b.loseNode(pod.Name)
	b.look(0)
	require.Len(t, b.maintainers(), 1, "the node may be back")
	b.clock.SetTime(lost.Add(time.Second))
	b.look(0)
	b.requireNoMover(pod.Name)
	require.Contains(t, b.repository("shop").Status.RecentMaintenance[0].Message, "does not say that it has ended")
	b.look(59 * time.Minute)
	require.Empty(t, b.maintainers(), "the run may go on until its record has expired")
	b.look(time.Minute)
	require.Len(t, b.maintainers(), 1)
}

func TestTheRepositoryOfARemovedNamespaceEnds(t *testing.T) {
	b := newMaintenanceBed(t, newRepository("gone"))
	b.look(time.Hour)
	b.maintain(outcome.Result{Phase: outcome.Completed})
	b.repository("gone")
	b.look(time.Hour)
	b.maintain(outcome.Result{Phase: outcome.Completed, Empty: true})
	r := newRepository("gone")
	require.True(t, apierrors.IsNotFound(b.client.Get(t.Context(), client.ObjectKeyFromObject(r), r)))
	b.look(time.Hour)
	require.Empty(t, b.maintainers())
}

// A mover has keys of the bucket, and is removed when it has ended, whatever became of its repository since.
func TestARunEndsWhenItsRepositoryIsMaintainedNoMore(t *testing.T) {
	for name, change := range map[string]func(b *bed){
		"maintenance was turned off": func(b *bed) {
			b.configure(func(c *control.Config) { c.MaintenanceInterval = 0 })
		},
		"another location": func(b *bed) {
			r := b.repository("shop")
			b.update(r, func() { r.Spec.BackupStorageLocation = "gone" })
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newMaintenanceBed(t, newRepository("shop"))
			b.look(time.Hour)
			pod := b.maintainers()[0].Name
			b.run(pod)
			change(b)
			b.maintain(outcome.Result{Phase: outcome.Completed})
			b.requireNoMover(pod)
			require.EqualValues(t, "Succeeded", b.repository("shop").Status.RecentMaintenance[0].Result)
			b.look(48 * time.Hour)
			require.Empty(t, b.maintainers())
		})
	}
}
