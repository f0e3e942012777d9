package plugins

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/site"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost/selfplugin"
	"github.com/holdfast-io/holdfast/pkg/plugin"
)

// note has ConfigMaps say that they were seen, and does what "and" in their data says.
type note struct{ plugin.Everything }

func (note) Execute(_ context.Context, in *plugin.BackupInput) (*plugin.BackupOutput, error) {
	in.Item.SetAnnotations(map[string]string{"note.example.com/seen": in.Backup.Name()})
	out := plugin.NewBackupOutput(in.Item)
	data, ok := in.Item.Object["data"].(map[string]any)
	if !ok {
		return out, nil
	}
	switch data["and"] {
	case "crashes":
		os.Exit(7)
	case "leaves":
		return out.WithoutBackup(), nil
	case "asks":
		return out.WithMustInclude().WithAdditionalItems(plugin.ResourceIdentifier{Resource: "secrets", Namespace: "elsewhere", Name: "wanted"}), nil
	}
	return out, nil
}

// TestBackupRunsActions backs up through a plugin process and the built-in actions on a real API
// server.
func TestBackupRunsActions(t *testing.T) {
	dir := selfplugin.Directory(t, "note")
	s := site.Start(t, site.Config{Args: map[string][]string{"backup-runner": {"--plugin-dir", dir}}})
	bucket, path := site.FileBucket(t, "plugins")
	s.ReachFiles(t, path, bucket)

	const from = "shop"
	s.Estate(t, from, 100, 500)
	s.Namespace(t, "elsewhere")
	for _, o := range []client.Object{
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "elsewhere", Name: "wanted"}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "elsewhere", Name: "unwanted"}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: from, Name: "clerk"}},
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "shop-clerk"}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "shop-clerks"},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "shop-clerk"},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: from, Name: "clerk"}}},
	} {
		require.NoError(t, s.Client.Create(t.Context(), o))
	}
	for _, and := range []string{"crashes", "leaves", "asks"} {
		require.NoError(t, s.Client.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: from, Name: and}, Data: map[string]string{"and": and}}))
	}

	s.Backup(t, "b", bucket, from)
	b := s.BackupEnds(t, "b")
	results := string(bucket.ReadZipped(t, "backups/b/b-results.gz"))
	require.Equal(t, velerov1.BackupPhasePartiallyFailed, b.Status.Phase, b.Status.FailureReason)
	require.Equal(t, 1, b.Status.Errors, results)
	require.Contains(t, results, "plugin note.example.com/config: Execute of ConfigMap shop/crashes: plugin process died")

	stored := map[string]metav1.PartialObjectMetadata{}
	bucket.EachStored(t, "b", func(path string, content []byte) {
		if strings.HasPrefix(path, "resources/") && !strings.Contains(path, "-preferredversion/") {
			var o metav1.PartialObjectMetadata
			require.NoError(t, json.Unmarshal(content, &o), path)
			stored[strings.TrimSuffix(strings.TrimPrefix(path, "resources/"), ".json")] = o
		}
	})
	maps := 0
	for path, o := range stored {
		if strings.HasPrefix(path, "configmaps/") {
			maps++
			require.Equal(t, map[string]string{"note.example.com/seen": "b"}, o.Annotations, path)
		}
	}
	require.Equal(t, 102, maps, "the unrelated, the one that asks, and the certificate authority's")
	for _, path := range []string{
		"configmaps/namespaces/shop/asks", "secrets/namespaces/elsewhere/wanted", "namespaces/cluster/elsewhere",
		"clusterrolebindings.rbac.authorization.k8s.io/cluster/shop-clerks", "clusterroles.rbac.authorization.k8s.io/cluster/shop-clerk",
	} {
		require.Contains(t, stored, path)
	}
	for _, path := range []string{"configmaps/namespaces/shop/crashes", "configmaps/namespaces/shop/leaves", "secrets/namespaces/elsewhere/unwanted"} {
		require.NotContains(t, stored, path)
	}
}
