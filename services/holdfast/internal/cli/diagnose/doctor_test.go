package diagnose_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"

	"github.com/holdfast-io/holdfast/pkg/service"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/command"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/diagnose"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/doctor"
)

// startVersionServer is an API server that only states its version.
func startVersionServer(t *testing.T, version string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/version":
			_, _ = w.Write([]byte(`{"gitVersion":"` + version + `"}`))
		case "/api":
			_, _ = w.Write([]byte(`{"kind":"APIVersions","versions":[]}`))
		case "/apis":
			_, _ = w.Write([]byte(`{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`))
		default:
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`))
		}
	}))
	t.Cleanup(s.Close)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(path, []byte(`{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"c"}}],"clusters":[{"name":"c","cluster":{"server":"`+s.URL+`"}}]}`), 0o600))
	return path
}

func runCommand(t *testing.T, kubeconfig string, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	g := &command.Global{
		IOStreams: genericiooptions.IOStreams{Out: &out, ErrOut: &out}, Clock: clock.RealClock{}, Getenv: func(string) string { return "" }, Kubeconfig: kubeconfig,
	}
	cmd := diagnose.NewDoctorCommand(g, map[string]service.Ports{"deletion": {GRPC: 1, HTTP: 2}})
	cmd.SetArgs(args)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func TestTheExitCodeSaysWhetherACheckFailed(t *testing.T) {
	out, err := runCommand(t, startVersionServer(t, "v1.34.0"), "--checks", "kubernetes")
	require.NoError(t, err, out)
	require.Contains(t, out, "OK       kubernetes: version: Kubernetes v1.34.0\n")
	require.Contains(t, out, "3 ok, 0 skipped, 0 warnings, 0 failed\n")

	out, err = runCommand(t, startVersionServer(t, "odd"), "--checks", "kubernetes")
	require.NoError(t, err, "a warning is no failure")
	require.Contains(t, out, "WARNING  kubernetes: version: ")

	out, err = runCommand(t, startVersionServer(t, "v1.20.0"), "--checks", "kubernetes")
	require.ErrorIs(t, err, diagnose.ErrFailed)
	require.Equal(t, 1, command.ExitCode(err))
	require.Contains(t, out, "FAILED   kubernetes: version: ")
	require.Contains(t, out, "\n         -> upgrade the cluster")
}

func TestSkippedChecksDoNotRun(t *testing.T) {
	out, err := runCommand(t, startVersionServer(t, "v1.20.0"), "--checks", "kubernetes,nats", "--skip", "kubernetes")
	require.NoError(t, err)
	require.NotContains(t, out, "kubernetes")
	require.Contains(t, out, "SKIPPED  nats: ")
}

func TestJSON(t *testing.T) {
	out, err := runCommand(t, startVersionServer(t, "v1.20.0"), "--checks", "kubernetes", "-o", "json")
	require.ErrorIs(t, err, diagnose.ErrFailed)
	var report doctor.Report
	require.NoError(t, json.Unmarshal([]byte(out), &report))
	require.Equal(t, "velero", report.Namespace)
	require.Equal(t, 1, report.Count(doctor.Failed))
	require.NotEmpty(t, report.Findings[0].Remedy)
}

func TestFlagsAreNamed(t *testing.T) {
	kubeconfig := startVersionServer(t, "v1.34.0")
	for flag, args := range map[string][]string{
		"--checks":           {"--checks", "nonsense"},
		"--skip":             {"--skip", "nonsense"},
		"--checks, --skip":   {"--checks", "nats", "--skip", "nats"},
		"--timeout":          {"--timeout", "0s"},
		"--services-address": {"--services-address", "nobody=127.0.0.1:1"},
		"--metrics-address":  {"--metrics-address", "deletion=nowhere"},
		"--nats-url":         {"--nats-url", "nats://us er:hidden%zz@host"},
		"--plugin-call":      {"--plugin-call-timeout", "1ns"},
	} {
		out, err := runCommand(t, kubeconfig, args...)
		require.ErrorContains(t, err, flag)
		require.NotErrorIs(t, err, diagnose.ErrFailed)
		require.NotContains(t, out+err.Error(), "hidden")
	}
}
