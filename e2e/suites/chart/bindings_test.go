package chart_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/holdfast-io/holdfast/e2e/harness/chart"
	"github.com/holdfast-io/holdfast/pkg/service/rights"
)

// decodeBinding returns a binding of either kind; nil for other objects.
func decodeBinding(t *testing.T, object *unstructured.Unstructured) *rbacv1.RoleBinding {
	t.Helper()
	if kind := object.GetKind(); kind != "RoleBinding" && kind != "ClusterRoleBinding" {
		return nil
	}
	binding := &rbacv1.RoleBinding{}
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, binding))
	return binding
}

// Each binding gives the account of one component a role of that component and nothing else: with the
// table of rights, which has the rules of these roles, an account may do what the table has and no more.
func TestEachAccountIsBoundToItsOwnRolesAlone(t *testing.T) {
	for name, args := range variants {
		objects, bound := renderChart(t, args...), map[string]int{}
		for _, object := range objects {
			binding := decodeBinding(t, object)
			if binding == nil {
				continue
			}
			component := object.GetLabels()[component]
			account := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: chart.Release + "-" + component}
			require.Equal(t, []rbacv1.Subject{account}, binding.Subjects, "%s of %s", object.GetName(), name)
			require.Equal(t, rbacv1.GroupName, binding.RoleRef.APIGroup)
			require.Equal(t, object.GetKind(), binding.RoleRef.Kind+"Binding", object.GetName())
			role := objectNamed(objects, binding.RoleRef.Kind, binding.RoleRef.Name)
			require.NotNil(t, role, "%s names a role of the chart", object.GetName())
			require.Equal(t, component, role.GetLabels()["app.kubernetes.io/component"], object.GetName())
			require.Equal(t, object.GetNamespace(), role.GetNamespace(), object.GetName())
			bound[component]++
		}
		for _, service := range rights.Services() {
			if name == "outside" {
				require.Zero(t, bound[service], "rbac.create=false")
				continue
			}
			require.Equal(t, 2, bound[service], "%s of %s has a role of the namespace and one of the cluster", service, name)
		}
	}
}

// What the roles of callers allow, as docs/rights.md says.
func TestRolesOfCallers(t *testing.T) {
	const viewer, operator, admin, nobody = 1, 2, 3, 4
	objects := renderChart(t)
	for from, requests := range map[int][]chart.Request{
		viewer: {
			{Verb: "get", Group: "velero.io", Resource: "backups"}, {Verb: "list", Group: "velero.io", Resource: "backupstoragelocations"},
			{Verb: "create", Group: "velero.io", Resource: "serverstatusrequests"},
			{Verb: "post", Path: "/holdfast.queue.v1.QueueService/ListQueue"}, {Verb: "post", Path: "/holdfast.restore.v1.RestoreService/WatchProgress"},
			{Verb: "post", Path: "/holdfast.operation.v1.OperationMonitorService/ListOperations"}, {Verb: "post", Path: "/holdfast.backup.v1.BackupService/WatchProgress"},
		},
		operator: {
			{Verb: "post", Path: "/holdfast.backup.v1.BackupService/PlanBackup"}, {Verb: "post", Path: "/holdfast.queue.v1.QueueService/CheckBackup"},
			{Verb: "create", Group: "velero.io", Resource: "backups"}, {Verb: "create", Group: "velero.io", Resource: "restores"},
			{Verb: "create", Group: "velero.io", Resource: "downloadrequests"}, {Verb: "list", Group: "velero.io", Resource: "downloadrequests"},
			{Verb: "post", Path: "/holdfast.queue.v1.QueueService/SubmitBackup"}, {Verb: "post", Path: "/holdfast.queue.v1.QueueService/CancelBackup"},
			{Verb: "post", Path: "/holdfast.operation.v1.OperationMonitorService/StreamOperationLogs"}, {Verb: "post", Path: "/holdfast.operation.v1.OperationService/StreamLogs"},
			{Verb: "post", Path: "/holdfast.manifest.v1.ManifestService/ListItems"}, {Verb: "post", Path: "/holdfast.manifest.v1.ManifestService/GetItem"},
			{Verb: "post", Path: "/holdfast.manifest.v1.ManifestService/DiffManifests"}, {Verb: "post", Path: "/holdfast.restore.v1.RestoreService/PlanRestore"}, {Verb: "post", Path: "/holdfast.restore.v1.RestoreService/GetPlan"},
			{Verb: "post", Path: "/holdfast.manifest.v1.ManifestService/ListRelated"}, {Verb: "post", Path: "/holdfast.manifest.v1.ManifestService/VerifyBackup"},
			{Verb: "post", Path: "/holdfast.manifest.v1.ManifestService/SearchItems"}, {Verb: "post", Path: "/holdfast.manifest.v1.ManifestService/GetHistory"},
		},
		admin: {
			{Verb: "create", Group: "velero.io", Resource: "backupstoragelocations"}, {Verb: "delete", Group: "velero.io", Resource: "backups"},
			{Verb: "post", Path: "/holdfast.deletion.v1.DeletionService/DeleteBackup"}, {Verb: "post", Path: "/holdfast.manifest.v1.ManifestService/GetUnmaskedItem"},
			{Verb: "post", Path: "/holdfast.volume.v1.VolumeService/ListFiles"}, {Verb: "post", Path: "/holdfast.volume.v1.VolumeService/ReadFile"},
		},
		nobody: {
			{Verb: "get", Resource: "secrets"}, {Verb: "list", Resource: "secrets"}, {Verb: "post", Path: "/holdfast.operation.v1.OperationService/Cancel"},
			{Verb: "post", Path: "/holdfast.volume.v1.VolumeService/ForgetSnapshots"},
		},
	} {
		for level, role := range []string{viewer: "viewer", operator: "operator", admin: "admin"} {
			if role == "" {
				continue
			}
			rules := roleRules(t, objects, func(o *unstructured.Unstructured) bool { return o.GetName() == chart.Release+"-"+role })
			for _, r := range requests {
				require.Equal(t, level >= from, r.AllowedBy(rules), "%s: %s", role, r)
			}
		}
	}
}
