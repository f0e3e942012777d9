// Package access_test proves on a real API server that RBAC decides who may call a service.
package access_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	authnv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// namespace is that of the callers.
const namespace = "default"

// createToken creates an account and returns a token of it, for the API server or other audiences.
func createToken(t *testing.T, client kubernetes.Interface, account string, audiences ...string) string {
	t.Helper()
	accounts := client.CoreV1().ServiceAccounts(namespace)
	_, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}}, metav1.CreateOptions{})
	require.NoError(t, err)
	request, err := accounts.CreateToken(t.Context(), account, &authnv1.TokenRequest{Spec: authnv1.TokenRequestSpec{Audiences: audiences}}, metav1.CreateOptions{})
	require.NoError(t, err)
	return request.Status.Token
}

// allowPaths lets an account call the methods whose paths match.
func allowPaths(t *testing.T, client kubernetes.Interface, account, paths string) {
	t.Helper()
	_, err := client.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: account},
		Rules:      []rbacv1.PolicyRule{{NonResourceURLs: []string{paths}, Verbs: []string{"post"}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = client.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: account},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: account},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: account}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
}
