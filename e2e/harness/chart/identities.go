package chart

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authzv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/fleet"
	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
)

// Identities creates the accounts, roles and bindings of the chart, rendered with further arguments
// of helm template, and returns for each service the file with the kubeconfig of its account. The
// namespace must exist.
func Identities(t *testing.T, cluster *testbed.Cluster, c client.Client, namespace string, args ...string) map[string]string {
	t.Helper()
	objects, err := Render(t.Context(), t.TempDir(), namespace, args...)
	require.NoError(t, err)
	for _, object := range objects {
		if group := object.GroupVersionKind().Group; group == "rbac.authorization.k8s.io" || object.GetKind() == "ServiceAccount" {
			require.NoError(t, c.Create(t.Context(), object), "%s %s", object.GetKind(), object.GetName())
		}
	}
	grants, err := Grants(objects)
	require.NoError(t, err)
	files := map[string]string{}
	for _, service := range fleet.Services {
		files[service], err = cluster.KubeconfigFor(User(namespace, service), Groups(namespace)...)
		require.NoError(t, err)
		awaitEffective(t, c, grants, namespace, service)
	}
	return files
}

// Groups are those of the accounts in a namespace.
func Groups(namespace string) []string {
	return []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"}
}

// User is the user name of a service's account at the API server.
func User(namespace, service string) string {
	return fmt.Sprintf("system:serviceaccount:%s:%s-%s", namespace, Release, service)
}

// serviceOf is the inverse of User.
func serviceOf(user string) string {
	return strings.TrimPrefix(user[strings.LastIndex(user, ":")+1:], Release+"-")
}

// awaitEffective waits until the API server's authorizer has seen a service's role and cluster role.
func awaitEffective(t *testing.T, c client.Client, grants []Grant, namespace, service string) {
	t.Helper()
	seen := map[string]bool{} // places
	for _, g := range grants {
		if g.Service != service || seen[g.Namespace] || len(g.rule.Resources) == 0 {
			continue
		}
		seen[g.Namespace] = true
		require.Eventually(t, func() bool {
			review := &authzv1.SubjectAccessReview{Spec: authzv1.SubjectAccessReviewSpec{User: User(namespace, service), ResourceAttributes: g.resourceAttributes()}}
			return c.Create(t.Context(), review) == nil && review.Status.Allowed
		}, time.Minute, 50*time.Millisecond, "the right of %s", g)
	}
}
