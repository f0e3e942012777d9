//go:build node

package install

import (
	"bufio"
	"encoding/base64"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
)

// testCallers calls as docs/install.md says, through a forwarded port: grpcurl and the command line with
// a token, and Velero's command line, which knows the API server alone.
func (b *bed) testCallers(t *testing.T) {
	dir := t.TempDir()
	address := b.forwardPort(t, "queue-scheduler", "7441")
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	authority := file("ca.crt", b.readAuthority(t, "queue-scheduler"))
	tokens := map[string]string{}
	for _, role := range []string{"viewer", "operator"} {
		b.createAccount(t, role)
		tokens[role] = strings.TrimSpace(b.runTool(t, "kubectl", "--namespace", server, "create", "token", role))
	}
	grpcurl, err := testbed.Binary("grpcurl")
	require.NoError(t, err)
	call := func(token, request, method string) (string, error) {
		args := []string{"-cacert", authority, "-d", request}
		if token != "" {
			args = append(args, "-H", "authorization: Bearer "+token)
		}
		return b.tryProgram(t.Context(), grpcurl, append(args, address, "holdfast.queue.v1.QueueService/"+method)...)
	}
	submit := `{"name":"called","spec":{"includedNamespaces":["shop"]}}`
	_, err = call("", "{}", "ListQueue")
	require.ErrorContains(t, err, "Unauthenticated")
	_, err = call(tokens["viewer"], "{}", "ListQueue")
	require.NoError(t, err)
	_, err = call(tokens["viewer"], submit, "SubmitBackup")
	require.ErrorContains(t, err, "PermissionDenied")
	_, err = call(tokens["operator"], submit, "SubmitBackup")
	require.NoError(t, err)
	b.awaitCompleted(t, "called")

	list := []string{"queue", "get", "--queue-address", address, "--queue-ca-file", authority, "--queue-token-file"}
	b.runHoldfast(t, append(list, file("token", tokens["viewer"]))...)
	binary, err := testbed.Product("holdfast")
	require.NoError(t, err)
	_, err = b.tryProgram(t.Context(), binary, append(list, file("none", "no token"))...)
	require.Error(t, err)

	b.runTool(t, "velero", "--namespace", server, "backup", "create", "by-velero", "--include-namespaces", shop, "--wait")
	b.awaitCompleted(t, "by-velero")
	require.Contains(t, b.runTool(t, "velero", "--namespace", server, "backup", "describe", "by-velero", "--details", "--colorized=false"), "Phase:  Completed")
	require.Contains(t, b.runTool(t, "velero", "--namespace", server, "backup", "logs", "by-velero"), "level=")
}

// readAuthority returns the certificate authority of a service.
func (b *bed) readAuthority(t *testing.T, service string) string {
	t.Helper()
	text, err := base64.StdEncoding.DecodeString(b.runTool(t, "kubectl", "--namespace", server, "get", "secret", "holdfast-"+service+"-tls", "--output=jsonpath={.data.ca\\.crt}"))
	require.NoError(t, err)
	return string(text)
}

// createAccount creates an account with a role of callers, in all namespaces.
func (b *bed) createAccount(t *testing.T, role string) {
	t.Helper()
	meta := metav1.ObjectMeta{Namespace: server, Name: role}
	require.NoError(t, b.client.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: meta}))
	require.NoError(t, b.client.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "holdfast-" + role},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: server, Name: role}},
	}))
}

// forwardPort forwards a port of a service with kubectl until the test is done, and returns its address
// on this machine.
func (b *bed) forwardPort(t *testing.T, service, port string) string {
	t.Helper()
	kubectl, err := testbed.Binary("kubectl")
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), kubectl, "--kubeconfig", b.kubeconfig, "--namespace", server, "port-forward", "--address=127.0.0.1", "deploy/holdfast-"+service, ":"+port)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = t.Output()
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Wait() }) // the context has ended
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err, "kubectl port-forward")
	_, rest, found := strings.Cut(line, "Forwarding from ")
	require.True(t, found, line)
	address, _, _ := strings.Cut(rest, " ")
	return address
}
