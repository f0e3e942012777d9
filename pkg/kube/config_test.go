package kube_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/client-go/rest"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/apis/velero/v2alpha1"
	"github.com/holdfast-io/holdfast/pkg/kube"
)

const kubeconfig = `apiVersion: v1
kind: Config
current-context: one
contexts:
- {name: one, context: {cluster: one}}
- {name: two, context: {cluster: two}}
clusters:
- {name: one, cluster: {server: "https://127.0.0.1:1"}}
- {name: two, cluster: {server: "https://127.0.0.1:2"}}
`

// TestErrorsOfAKubeconfigHoldNoPassword: the library repeats a proxy's URL that it cannot parse.
func TestErrorsOfAKubeconfigHoldNoPassword(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	bad := strings.Replace(kubeconfig, `server: "https://127.0.0.1:1"`, `server: "https://127.0.0.1:1", proxy-url: "http://u:secret%zz@proxy"`, 1)
	require.NoError(t, os.WriteFile(path, []byte(bad), 0o600))
	_, err := kube.Config(path)
	require.ErrorContains(t, err, "proxy-url")
	require.NotContains(t, err.Error(), "secret")
}

func TestConfigReadsAFileAndAContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(path, []byte(kubeconfig), 0o600))

	cfg, err := kube.Config(path)
	require.NoError(t, err)
	require.Equal(t, "https://127.0.0.1:1", cfg.Host)
	require.Less(t, cfg.QPS, float32(0), "no limit on the client's side")
	require.Contains(t, cfg.UserAgent, "holdfast/")

	cfg, err = kube.ConfigForContext(path, "two")
	require.NoError(t, err)
	require.Equal(t, "https://127.0.0.1:2", cfg.Host)

	_, err = kube.ConfigForContext(path, "three")
	require.ErrorContains(t, err, "three")
	_, err = kube.Config(path + ".absent")
	require.ErrorContains(t, err, "kubeconfig")
}

func TestSchemeKnowsEveryKind(t *testing.T) {
	s := kube.Scheme()
	require.True(t, s.Recognizes(velerov1.GroupVersion.WithKind("Backup")))
	require.True(t, s.Recognizes(v2alpha1.GroupVersion.WithKind("DataUpload")))
	require.True(t, s.Recognizes(coordinationv1.SchemeGroupVersion.WithKind("Lease")))
}

func TestManagersCanShareAProcess(t *testing.T) {
	cfg := &rest.Config{Host: "https://127.0.0.1:1"}
	for range 2 {
		mgr, err := kube.NewManager(cfg, "velero", nil, slog.New(slog.DiscardHandler))
		require.NoError(t, err)
		require.True(t, mgr.GetScheme().Recognizes(velerov1.GroupVersion.WithKind("Restore")))
	}
}
