package chart_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/site"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// Every service does its work under its own account, with the chart's roles and no others: nothing
// it asks for is refused.
func TestServicesNeedNoMoreThanTheirRoles(t *testing.T) {
	s := site.Start(t, site.Config{})
	bucket, dir := site.FileBucket(t, "default")
	s.ReachFiles(t, dir, bucket)
	s.Estate(t, "shop", 20, 100)
	createFullAccess(t, s, "shop")
	require.NoError(t, s.Client.Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: site.Server, Name: "holdfast-settings"}, Data: map[string]string{"concurrent-backups": "2"},
	}))
	before, err := s.Data(t.Context(), "shop")
	require.NoError(t, err)

	s.Backup(t, "everything", bucket)
	require.Equal(t, velerov1.BackupPhaseCompleted, s.BackupEnds(t, "everything").Status.Phase)
	s.Restore(t, "again", "everything", "shop", "copy")
	restored := s.RestoreEnds(t, "again")
	require.Equal(t, velerov1.RestorePhaseCompleted, restored.Status.Phase, "%+v", restored.Status)
	after, err := s.Data(t.Context(), "copy")
	require.NoError(t, err)
	require.Equal(t, before, after)
	require.NoError(t, s.Client.Get(t.Context(), client.ObjectKey{Namespace: "copy", Name: "everything"}, &rbacv1.RoleBinding{}))

	schedule := &velerov1.Schedule{ObjectMeta: metav1.ObjectMeta{Namespace: site.Server, Name: "often"}, Spec: velerov1.ScheduleSpec{
		Schedule: "@every 1s", Template: velerov1.BackupSpec{StorageLocation: bucket.Location, IncludedNamespaces: []string{"shop"}},
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
	s.EventsTell(t, "Backup everything Completed", "Restore again Completed", "BackupStorageLocation "+bucket.Location+" Available")
	s.DeleteBackup(t, "everything")
	s.Fleet.Stop()

	allowed, _ := s.Audit.Requests(t)
	require.Greater(t, len(allowed), 50, "the log has what the services did")
}

// createFullAccess makes what only an account may restore that may do anything: a role of all rights, and a
// binding to it. With it comes a workload whose objects own one another.
func createFullAccess(t *testing.T, s *site.Site, namespace string) {
	t.Helper()
	labels := map[string]string{"app": "shop"}
	meta := metav1.ObjectMeta{Namespace: namespace, Name: "everything"}
	for _, object := range []client.Object{
		&rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}}},
		&rbacv1.RoleBinding{
			ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: "default"}},
		},
		&appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "shop", Image: "example.com/shop"}}},
			},
		}},
	} {
		require.NoError(t, s.Client.Create(t.Context(), object))
	}
}
