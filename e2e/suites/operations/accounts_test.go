package operations

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	authnv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-io/holdfast/e2e/harness/chart"
	"github.com/holdfast-io/holdfast/e2e/harness/site"
)

// pluginRules grant what the plugins ask of the API server with the accounts of the services that
// start them, as arguments of helm template.
var pluginRules = []string{
	"--set", "backupRunner.extraRules[0].apiGroups={" + group + "},backupRunner.extraRules[0].resources={" + works + "},backupRunner.extraRules[0].verbs={create,get,patch}",
	"--set", "asyncOperationMonitor.extraRules[0].apiGroups={" + group + "},asyncOperationMonitor.extraRules[0].resources={" + works + "},asyncOperationMonitor.extraRules[0].verbs={get,patch}",
}

// tokenFile returns a file with a token of an account in the server namespace.
func tokenFile(t *testing.T, s *site.Site, account string) string {
	t.Helper()
	request := &authnv1.TokenRequest{}
	of := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: site.Server, Name: account}}
	require.NoError(t, s.Client.SubResource("token").Create(t.Context(), of, request))
	path := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(path, []byte(request.Status.Token), 0o600))
	return path
}

// newCaller creates an account with the chart's role of administrators for gRPC, and returns the file
// with its token.
func newCaller(t *testing.T, s *site.Site) string {
	t.Helper()
	meta := metav1.ObjectMeta{Namespace: site.Server, Name: "caller"}
	require.NoError(t, s.Client.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: meta}))
	require.NoError(t, s.Client.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: meta.Name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: chart.Release + "-admin"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: meta.Namespace, Name: meta.Name}},
	}))
	return tokenFile(t, s, meta.Name)
}

// GetRequestMetadata implements credentials.PerRPCCredentials with the token of the caller.
func (b *bed) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	token, err := os.ReadFile(b.tokenFile)
	return map[string]string{"authorization": "Bearer " + strings.TrimSpace(string(token))}, err
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (b *bed) RequireTransportSecurity() bool { return true }
