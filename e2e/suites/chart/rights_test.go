package chart_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/chart"
	"github.com/holdfast-io/holdfast/e2e/harness/seed"
	"github.com/holdfast-io/holdfast/e2e/harness/site"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// Every service does its work under its own account, with the chart's roles and no others: nothing
// it asks for is refused.
func TestServicesNeedNoMoreThanTheirRoles(t *testing.T) {
	audit := chart.NewAudit(t)
	s := site.Start(t, site.Config{
		Cluster: audit.Configure,
		Arrange: func(s *site.Site) map[string][]string { return chart.Identities(t, s.Cluster, s.Client, site.Server) },
	})
	bucket, dir := site.FileBucket(t, "default")
	s.ReachFiles(t, dir, bucket)
	_, err := seed.Apply(t.Context(), s.Cluster.RestConfig(), seed.Options{})
	require.NoError(t, err)
	require.NoError(t, s.Client.Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: site.Server, Name: "holdfast-settings"}, Data: map[string]string{"concurrent-backups": "2"},
	}))

	backup := &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: site.Server, Name: "everything"}, Spec: velerov1.BackupSpec{
		StorageLocation: bucket.Location, IncludedNamespaces: seed.Options{}.Namespaces(), IncludeClusterResources: new(true),
	}}
	require.NoError(t, s.Client.Create(t.Context(), backup))
	require.Equal(t, velerov1.BackupPhaseCompleted, s.BackupEnds(t, "everything").Status.Phase)
	_, err = seed.Remove(t.Context(), s.Cluster.RestConfig())
	require.NoError(t, err)
	require.NoError(t, s.Client.Create(t.Context(), &velerov1.Restore{
		ObjectMeta: metav1.ObjectMeta{Namespace: site.Server, Name: "again"}, Spec: velerov1.RestoreSpec{BackupName: "everything"},
	}))
	restored := s.RestoreEnds(t, "again")
	require.Equal(t, velerov1.RestorePhaseCompleted, restored.Status.Phase, "%+v", restored.Status)

	schedule := &velerov1.Schedule{ObjectMeta: metav1.ObjectMeta{Namespace: site.Server, Name: "often"}, Spec: velerov1.ScheduleSpec{
		Schedule: "@every 1s", Template: velerov1.BackupSpec{StorageLocation: bucket.Location, IncludedNamespaces: []string{"default"}},
	}}
	require.NoError(t, s.Client.Create(t.Context(), schedule))
	require.Eventually(t, func() bool {
		list := &velerov1.BackupList{}
		return s.Client.List(t.Context(), list) == nil && slices.ContainsFunc(list.Items, func(b velerov1.Backup) bool {
			return b.Labels[velerov1.LabelScheduleName] == "often" && b.Status.Phase == velerov1.BackupPhaseCompleted
		})
	}, site.Patience, site.Look, "a scheduled backup completes")
	require.NoError(t, s.Client.Delete(t.Context(), schedule))

	download := &velerov1.DownloadRequest{ObjectMeta: metav1.ObjectMeta{Namespace: site.Server, Name: "log"}, Spec: velerov1.DownloadRequestSpec{
		Target: velerov1.DownloadTarget{Kind: velerov1.DownloadTargetKindBackupLog, Name: "everything"},
	}}
	require.NoError(t, s.Client.Create(t.Context(), download))
	status := &velerov1.ServerStatusRequest{ObjectMeta: metav1.ObjectMeta{Namespace: site.Server, Name: "status"}}
	require.NoError(t, s.Client.Create(t.Context(), status))
	require.Eventually(t, func() bool {
		return s.Client.Get(t.Context(), client.ObjectKeyFromObject(download), download) == nil && download.Status.DownloadURL != "" &&
			s.Client.Get(t.Context(), client.ObjectKeyFromObject(status), status) == nil && status.Status.ServerVersion != ""
	}, site.Patience, site.Look, "a link and the status are there")
	require.NoError(t, s.Client.Create(t.Context(), &velerov1.DeleteBackupRequest{
		ObjectMeta: metav1.ObjectMeta{Namespace: site.Server, Name: "delete"}, Spec: velerov1.DeleteBackupRequestSpec{BackupName: "everything"},
	}))
	require.Eventually(t, func() bool {
		list := &velerov1.BackupList{}
		return s.Client.List(t.Context(), list) == nil && !slices.ContainsFunc(list.Items, func(b velerov1.Backup) bool { return b.Name == "everything" })
	}, site.Patience, site.Look, "the backup is deleted")
	s.Fleet.Stop()

	allowed, refused := audit.Requests(t, site.Server)
	for r := range refused {
		t.Errorf("refused: %s", r)
	}
	require.Greater(t, len(allowed), 100, "the log has what the services did")
	report(t, allowed)
}

// report logs the rules that nothing used: other suites use them, or they are too much.
func report(t *testing.T, allowed map[chart.Request]bool) {
	t.Helper()
	objects, err := chart.Render(t.Context(), t.TempDir(), site.Server)
	require.NoError(t, err)
	for _, object := range objects {
		if object.GetKind() != "Role" && object.GetKind() != "ClusterRole" {
			continue
		}
		service := object.GetLabels()["app.kubernetes.io/component"]
		var role rbacv1.ClusterRole
		require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &role))
		for _, rule := range role.Rules {
			for _, verb := range rule.Verbs {
				rule := rule
				rule.Verbs = []string{verb}
				used := false
				for r := range allowed {
					used = used || r.Service == service && r.Matches(&rule)
				}
				if !used && service != "" {
					t.Logf("not used here: %s: %s of %v %v%v", service, verb, rule.APIGroups, rule.Resources, rule.NonResourceURLs)
				}
			}
		}
	}
}
