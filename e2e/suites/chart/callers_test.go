package chart_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	authzv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/site"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/kube"
)

// clientForRole returns a client of a user who has one of the roles of callers, bound as docs/rights.md says.
func (p *chartPlace) clientForRole(t *testing.T, role string) client.Client {
	t.Helper()
	subjects := []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: role}}
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "holdfast-" + role}
	meta := metav1.ObjectMeta{Namespace: namespace, Name: "caller-" + role}
	require.NoError(t, p.client.Create(t.Context(), &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects}))
	meta.Namespace = ""
	require.NoError(t, p.client.Create(t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects}))
	config := p.cluster.RestConfig()
	config.Impersonate = rest.ImpersonationConfig{UserName: role}
	c, err := client.New(config, client.Options{Scheme: kube.Scheme()})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		return c.List(t.Context(), &velerov1.BackupList{}, client.InNamespace(namespace)) == nil
	}, site.Patience, site.Look, "the rights of %s", role)
	return c
}

// The API server lets people with the roles of callers do what docs/rights.md says, and no more.
func (p *chartPlace) callersMay(t *testing.T) {
	const viewer, operator, admin = 1, 2, 3
	meta := metav1.ObjectMeta{Namespace: namespace, Name: "caller"}
	require.NoError(t, p.client.Create(t.Context(), &corev1.Secret{ObjectMeta: meta}))
	require.NoError(t, p.client.Create(t.Context(), &velerov1.Backup{ObjectMeta: meta}))
	for level, role := range []string{viewer: "viewer", operator: "operator", admin: "admin"} {
		if role == "" {
			continue
		}
		c, named := p.clientForRole(t, role), metav1.ObjectMeta{Namespace: namespace, Name: "by-" + role}
		for what, rule := range map[string]struct {
			from int
			do   func() error
		}{
			"read a location": {viewer, func() error {
				return c.List(t.Context(), &velerov1.BackupStorageLocationList{}, client.InNamespace(namespace))
			}},
			"ask for the status": {viewer, func() error { return c.Create(t.Context(), &velerov1.ServerStatusRequest{ObjectMeta: named}) }},
			"create a backup":    {operator, func() error { return c.Create(t.Context(), &velerov1.Backup{ObjectMeta: named}) }},
			"create a restore":   {operator, func() error { return c.Create(t.Context(), &velerov1.Restore{ObjectMeta: named}) }},
			"download": {operator, func() error {
				return c.Create(t.Context(), &velerov1.DownloadRequest{ObjectMeta: named, Spec: velerov1.DownloadRequestSpec{
					Target: velerov1.DownloadTarget{Kind: velerov1.DownloadTargetKindBackupContents, Name: "caller"},
				}})
			}},
			"read links": {operator, func() error {
				return c.List(t.Context(), &velerov1.DownloadRequestList{}, client.InNamespace(namespace))
			}},
			"create a location": {admin, func() error {
				return c.Create(t.Context(), &velerov1.BackupStorageLocation{ObjectMeta: named}, client.DryRunAll)
			}},
			"delete a backup": {admin, func() error { return c.Delete(t.Context(), &velerov1.Backup{ObjectMeta: meta}, client.DryRunAll) }},
			"read a Secret": {admin + 1, func() error {
				return c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "caller"}, &corev1.Secret{})
			}},
			"list Secrets": {admin + 1, func() error { return c.List(t.Context(), &corev1.SecretList{}, client.InNamespace(namespace)) }},
		} {
			err := rule.do()
			if level >= rule.from {
				require.False(t, apierrors.IsForbidden(err), "%s: %s: %v", role, what, err)
			} else {
				require.True(t, apierrors.IsForbidden(err), "%s may %s: %v", role, what, err)
			}
		}
		for method, from := range map[string]int{
			"queue.v1.QueueService/ListQueue": viewer, "restore.v1.RestoreService/WatchProgress": viewer, "operation.v1.OperationMonitorService/ListOperations": viewer,
			"queue.v1.QueueService/SubmitBackup": operator, "queue.v1.QueueService/CancelBackup": operator,
			"operation.v1.OperationMonitorService/StreamOperationLogs": operator, "operation.v1.OperationService/StreamLogs": operator,
			"deletion.v1.DeletionService/DeleteBackup": admin, "manifest.v1.ManifestService/GetItem": admin, "manifest.v1.ManifestService/ListItems": admin,
			"operation.v1.OperationService/Cancel": admin + 1,
		} {
			review := &authzv1.SubjectAccessReview{Spec: authzv1.SubjectAccessReviewSpec{
				User: role, NonResourceAttributes: &authzv1.NonResourceAttributes{Path: "/holdfast." + method, Verb: "post"},
			}}
			require.NoError(t, p.client.Create(t.Context(), review))
			require.Equal(t, level >= from, review.Status.Allowed, "%s: %s", role, method)
		}
	}
}
