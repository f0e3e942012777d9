package podvolume

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/site"
	"github.com/holdfast-io/holdfast/e2e/harness/volumefiles"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/layout"
	queuev1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/queue/v1"
)

// filesRestored has the command line bring files and directories back into the volume of a Pod that runs.
func (b *bed) filesRestored(t *testing.T) {
	const name = "press"
	dirs := b.createApplication(t, name, nil)
	at := func(path string) string { return filepath.Join(dirs["data"], path) }
	write := func(path, content string) {
		t.Helper()
		require.NoError(t, os.MkdirAll(filepath.Dir(at(path)), 0o750))
		require.NoError(t, os.WriteFile(at(path), []byte(content), 0o640))
	}
	const special = "a, b\n$(TMPDIR) $$/-x"
	for _, path := range []string{"etc/app.conf", "uploads/2024/a.jpg", "uploads/2024/b.jpg", special} {
		write(path, "stored "+path)
	}
	b.createBackup(t, name)
	b.BackupCompletes(t, name)
	stored := volumefiles.Describe(t, dirs["data"])

	write("etc/app.conf", "changed since, and longer")
	write("uploads/new", "new")
	require.NoError(t, os.RemoveAll(at("uploads/2024")))
	require.NoError(t, os.Remove(at(special)))
	want, scratch := volumefiles.Describe(t, dirs["data"]), volumefiles.Describe(t, dirs["scratch"])
	for _, path := range []string{"uploads/2024", "uploads/2024/a.jpg", "uploads/2024/b.jpg", special} {
		want[path] = stored[path]
	}
	cli := b.CLI(t)
	run := func(restore string, files ...string) error {
		args := []string{"restore", "create", restore, "--from-backup", name, "-n", name, "--wait"}
		for _, file := range files {
			args = append(args, "--files", file)
		}
		_, err := cli.Run(t.Context(), args...)
		return err
	}
	require.NoError(t, run("press-files", "data:uploads/2024,\"data:"+special+"\""))
	got := volumefiles.Describe(t, dirs["data"])
	for _, path := range []string{".", "uploads", filepath.Dir(special)} { // their times
		delete(got, path)
		delete(want, path)
	}
	require.Equal(t, want, got)
	require.Equal(t, scratch, volumefiles.Describe(t, dirs["scratch"]))
	require.Len(t, b.restoreRequests(t, "press-files"), 1)
	require.Contains(t, string(b.bucket.ReadZipped(t, layout.RestoreResourceList("press-files"))), `{"v1/PersistentVolumeClaim":["press/data(updated)"]}`)
	b.requireNoMovers(t)

	require.Error(t, run("press-none", "data:etc/app.conf", "data:etc/none"))
	require.Equal(t, velerov1.RestorePhasePartiallyFailed, b.RestoreEnds(t, "press-none").Status.Phase)
	require.Contains(t, string(b.bucket.ReadZipped(t, layout.RestoreResults("press-none"))), `\"etc/none\" in the volume: not found`)
	require.Error(t, run("press-other", "other:etc"))
	require.Equal(t, velerov1.RestorePhaseFailedValidation, b.RestoreEnds(t, "press-other").Status.Phase)
	const changed = "changed since, and longer"
	require.Equal(t, changed, readFile(t, at("etc/app.conf")), "nothing is written unless all is there")
	release := b.holdMovers(t, 1, func() {
		_, err := cli.Run(t.Context(), "restore", "create", "press-unwanted", "--from-backup", name, "-n", name, "--files", "data:etc")
		require.NoError(t, err)
	})
	defer release()
	_, err := queuev1.NewQueueServiceClient(b.Dial(t, "queue-scheduler")).CancelRestore(t.Context(), &queuev1.CancelRestoreRequest{Name: "press-unwanted", RequestedBy: "alice"})
	require.NoError(t, err)
	require.Equal(t, velerov1.RestorePhaseFailed, b.RestoreEnds(t, "press-unwanted").Status.Phase)
	require.Eventually(t, func() bool {
		return b.restoreRequests(t, "press-unwanted")[0].Status.Phase == velerov1.PodVolumePhaseCanceled
	}, site.Patience, site.Look, "the request is Canceled")
	require.Equal(t, changed, readFile(t, at("etc/app.conf")))

	require.NoError(t, b.Client.Delete(t.Context(), newPod(name, nil), client.GracePeriodSeconds(0)))
	require.Error(t, run("press-unmounted", "data:etc"))
	require.Contains(t, string(b.bucket.ReadZipped(t, layout.RestoreResults("press-unmounted"))), "claim press/data: its files are not restored: no Pod that runs mounts it for writing")
	require.Empty(t, b.restoreRequests(t, "press-unmounted"))
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(data)
}
