package volumedata_test

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
)

// runMover runs volume-mover with the files location and password of dir, until it has completed. peak is that
// of its resident set, in MiB.
func runMover(t *testing.T, dir string, args ...string) (snapshot string, peak int) {
	t.Helper()
	binary, err := testbed.Product("volume-mover")
	require.NoError(t, err)
	args = append(append([]string{"move"}, args...), "--namespace", "app", "--cache-dir", dir,
		"--location", filepath.Join(dir, "location"), "--password-file", filepath.Join(dir, "password"))
	mover := exec.CommandContext(t.Context(), binary, args...)
	var out bytes.Buffer
	mover.Stdout, mover.Stderr = &out, os.Stderr
	require.NoError(t, mover.Start())
	ended := make(chan error, 1)
	go func() { ended <- mover.Wait() }()
	require.Eventually(t, func() bool { // the peak that wait(2) reports includes that of this process
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", mover.Process.Pid))
		if found := residentPeak.FindSubmatch(status); found != nil {
			peak, _ = strconv.Atoi(string(found[1]))
		}
		return len(ended) > 0
	}, 5*time.Minute, 10*time.Millisecond)
	require.NoError(t, <-ended, "%s", &out)
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	var last struct {
		Result struct{ Phase, SnapshotID string }
	}
	require.NoError(t, json.Unmarshal([]byte(lines[len(lines)-1]), &last))
	require.Equal(t, "Completed", last.Result.Phase)
	return last.Result.SnapshotID, peak >> 10
}

var residentPeak = regexp.MustCompile(`VmHWM:\s+([0-9]+) kB`)

// TestMemory checks what a volume of 20,000 files takes, in an upload and in a restore.
func TestMemory(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"bucket", "volume", "restored"} {
		require.NoError(t, os.Mkdir(path(name), 0o755))
	}
	location := fmt.Sprintf(`{"apiVersion": "velero.io/v1", "kind": "BackupStorageLocation", "metadata": {"name": "default", "namespace": "velero"},
		"spec": {"provider": "holdfast.io/file", "config": {"path": %q}, "objectStorage": {"bucket": "bucket"}}}`, dir)
	require.NoError(t, os.WriteFile(path("location"), []byte(location), 0o600))
	require.NoError(t, os.WriteFile(path("password"), []byte("secret"), 0o600))
	data := make([]byte, 2000)
	for i := range 20000 {
		_, _ = rand.Read(data[:16])
		file := filepath.Join(path("volume"), strconv.Itoa(i%100), strconv.Itoa(i))
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, data, 0o644))
	}
	id, uploading := runMover(t, dir, "upload", "--source", path("volume"), "--pod", "web-0", "--volume", "data", "--create-repository")
	_, restoring := runMover(t, dir, "restore", "--snapshot", id, "--target", path("restored"))
	t.Logf("peaks of the resident set: upload %d MiB, restore %d MiB", uploading, restoring)
	for _, peak := range []int{uploading, restoring} {
		require.Positive(t, peak)
		require.Less(t, peak, 256)
	}
}
