package main

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
)

// invokeProgram runs the program's command line and returns what it prints.
func invokeProgram(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var output bytes.Buffer
	cmd := rootCommand()
	cmd.SetOut(&output)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	return output.String(), err
}

func TestOneChangedByteFailsTheComparison(t *testing.T) {
	cluster := testbed.StartT(t)
	client, err := kubernetes.NewForConfig(cluster.RestConfig())
	require.NoError(t, err)
	secrets := client.CoreV1().Secrets("default")
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Data: map[string][]byte{"key": []byte("hunter2")}}
	secret, err = secrets.Create(t.Context(), secret, metav1.CreateOptions{})
	require.NoError(t, err)
	common := []string{
		"--kubeconfig", cluster.Kubeconfig(), "--namespaces", "default", "--file", filepath.Join(t.TempDir(), "before"),
	}

	output, err := invokeProgram(t, append([]string{"snapshot"}, common...)...)
	require.NoError(t, err)
	require.Contains(t, output, "objects: ")
	output, err = invokeProgram(t, append([]string{"diff"}, common...)...)
	require.NoError(t, err)
	require.Contains(t, output, "0 different, 0 missing, 0 extra")
	require.Contains(t, output, "ignored: *: metadata.uid", "the fixed list is printed")

	secret.Data["key"][6] = '3'
	_, err = secrets.Update(t.Context(), secret, metav1.UpdateOptions{})
	require.NoError(t, err)
	output, err = invokeProgram(t, append([]string{"diff"}, common...)...)
	require.ErrorIs(t, err, errDiffers)
	require.Contains(t, output, "different: Secret default/s: .data.key")
	require.Contains(t, output, "1 different, 0 missing, 0 extra")
	require.NotContains(t, output, "aHVudGVy", "no content of a Secret is printed")
}

func TestWrongFilesAreNamed(t *testing.T) {
	_, err := invokeProgram(t, "snapshot", "--kubeconfig", filepath.Join(t.TempDir(), "absent"))
	require.ErrorContains(t, err, "--kubeconfig")
	_, err = invokeProgram(t, "snapshot", "surplus")
	require.Error(t, err)
}
