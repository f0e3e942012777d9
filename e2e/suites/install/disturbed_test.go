//go:build node

package install

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/node"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// testDisturbed has the kubelet and movers be killed in the middle of volumes, and volumes be what file-system backup cannot take as
// they are. What docs/volume-data.md promises of each holds: no volume is silently empty, and nothing is left.
func (b *bed) testDisturbed(t *testing.T) {
	b.createVault(t)
	b.disturbUploads(t)
	b.deleteVaultPod(t, unscheduled)
	b.backUpVault(t, "whole", "--wait")
	b.awaitCompleted(t, "whole")
	before := b.sumFiles(t)
	t.Run("files come out through the kubelet", func(t *testing.T) { b.readFiles(t, before) })
	b.destroy(t, vault)
	b.disturbRestores(t, before)
	b.awaitNoMovers(t)
	b.destroy(t, vault)
}

func (b *bed) backUpVault(t *testing.T, name string, args ...string) {
	t.Helper()
	b.runHoldfast(t, append([]string{"backup", "create", name, "--include-namespaces", vault, "--default-volumes-to-fs-backup"}, args...)...)
}

// disturbUploads removes files before their turn and kills the kubelet while one volume is read, and kills the mover of another one: the
// first is whole without the files, the second an error.
func (b *bed) disturbUploads(t *testing.T) {
	killed := b.killTransfer(t, " --volume "+films+" ", bytesRead)
	b.backUpVault(t, "disturbed")
	pid, err := b.awaitTransfer(t.Context(), " --volume "+photos+" ", bytesRead)
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
	b.runInPod(t, vault, archive, "rm /volumes/"+photos+"/gone-*")
	require.NoError(t, node.KillKubelet(b.dir))
	require.NoError(t, syscall.Kill(pid, syscall.SIGCONT))
	require.NoError(t, <-killed)

	backup := b.awaitEnded(t, "disturbed")
	described := b.runHoldfast(t, "backup", "describe", "disturbed", "--details")
	require.Equal(t, velerov1.BackupPhasePartiallyFailed, backup.Status.Phase, described)
	require.Equal(t, 2, backup.Status.Errors, described)
	require.Regexp(t, mirror+"[ :].*volume "+films+".*: /?the mover Pod ended without a result: Error .exit code 137", described)
	require.Contains(t, described, "the pod does not run: it is not scheduled")
	phases := map[string]velerov1.PodVolumePhase{}
	for volume, p := range b.podVolumeBackups(t, "disturbed") {
		phases[volume] = p.Status.Phase
	}
	require.Equal(t, map[string]velerov1.PodVolumePhase{ // nothing of scratch, and the shared claim once
		photos: velerov1.PodVolumePhaseCompleted, films: velerov1.PodVolumePhaseFailed, memory: velerov1.PodVolumePhaseCompleted, common: velerov1.PodVolumePhaseCompleted,
	}, phases, described)
	b.awaitNoMovers(t)
}

// podVolumeBackups returns the requests of a backup by their volumes.
func (b *bed) podVolumeBackups(t *testing.T, backup string) map[string]*velerov1.PodVolumeBackup {
	t.Helper()
	list := &velerov1.PodVolumeBackupList{}
	require.NoError(t, b.client.List(t.Context(), list, client.InNamespace(server), client.MatchingLabels{velerov1.LabelBackupName: backup}))
	found := map[string]*velerov1.PodVolumeBackup{}
	for i := range list.Items {
		p := &list.Items[i]
		require.NotContains(t, found, p.Spec.Volume)
		found[p.Spec.Volume] = p
	}
	return found
}

// sumFiles returns the sums of the files of the vault's claims, by their volumes.
func (b *bed) sumFiles(t *testing.T) map[string]string {
	t.Helper()
	sums := map[string]string{}
	for volume, pod := range map[string]string{photos: archive, films: mirror, common: second} {
		sums[volume] = b.runInPod(t, vault, pod, "cd /volumes/"+volume+" && sha256sum *")
	}
	return sums
}

// readFiles lists, prints and saves files of the backups with the command line, by commands that a kubelet runs in Pods.
func (b *bed) readFiles(t *testing.T, sums map[string]string) {
	b.createAccount(t, "admin")
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	token := file("token", strings.TrimSpace(b.runTool(t, "kubectl", "--namespace", server, "create", "token", "admin")))
	flags := []string{
		"--namespace", vault, "--volume-address", b.forwardPort(t, "volume-mover", "7447"), "--volume-token-file", token,
		"--volume-ca-file", file("ca.crt", b.readAuthority(t, "volume-mover")),
	}
	run := func(args ...string) string {
		return b.runHoldfast(t, slices.Concat([]string{"backup", "files"}, args, flags)...)
	}
	var listed []struct{ Name string }
	require.NoError(t, json.Unmarshal([]byte(run("disturbed", photos, "--output", "json")), &listed))
	names := map[string]int{}
	for _, entry := range listed {
		kind, _, _ := strings.Cut(entry.Name, "-")
		names[kind]++
	}
	require.Equal(t, 4, names["keep"])
	require.Less(t, names["gone"], 6, "files that vanished before their turn are not stored")
	require.Equal(t, "note\n", run("cat", "whole", common, "note"))
	saved := filepath.Join(dir, "saved")
	run("download", "whole", films, "keep-0", "--output", saved)
	data, err := os.ReadFile(saved)
	require.NoError(t, err)
	sum := sha256.Sum256(data)
	require.Contains(t, sums[films], hex.EncodeToString(sum[:])+"  keep-0\n")
}

// disturbRestores kills the kubelet while one volume is written, and the mover of another one, and has the data of a third be larger than
// the volume: the first is whole, and the Pods of the others wait. After what the documentation says to do the second is whole too.
func (b *bed) disturbRestores(t *testing.T, before map[string]string) {
	stored := b.podVolumeBackups(t, "whole")
	snapshot := func(volume string) string { return " --snapshot " + stored[volume].Status.SnapshotID + " " }
	killed := b.killTransfer(t, snapshot(films), bytesWritten)
	b.runHoldfast(t, "restore", "create", "disturbed", "--from-backup", "whole")
	_, err := b.awaitTransfer(t.Context(), snapshot(photos), bytesWritten)
	require.NoError(t, err)
	require.NoError(t, node.KillKubelet(b.dir))
	require.NoError(t, <-killed)

	restore := &velerov1.Restore{}
	require.Eventually(t, func() bool {
		return b.client.Get(t.Context(), client.ObjectKey{Namespace: server, Name: "disturbed"}, restore) == nil && restore.Status.Phase.Terminal()
	}, patience, look, "the restore ends")
	described := b.runHoldfast(t, "restore", "describe", "disturbed", "--details")
	require.Equal(t, velerov1.RestorePhasePartiallyFailed, restore.Status.Phase, described)
	require.Equal(t, 2, restore.Status.Errors, described)
	require.Regexp(t, mirror+"[ :].*volume "+films+".*: /?the mover Pod ended without a result: Error .exit code 137", described)
	require.Regexp(t, cramped+": .*volume "+memory+".*no space left on device", described)
	for _, pod := range []string{archive, first, second} {
		b.awaitFilled(t, pod)
	}
	for _, pod := range []string{mirror, cramped} {
		b.requireWaiting(t, pod)
	}

	b.deleteVaultPod(t, mirror, films)
	require.Contains(t, b.runHoldfast(t, "restore", "create", "again", "--from-backup", "whole", "--wait"), "Completed")
	b.awaitFilled(t, mirror)
	require.Equal(t, before, b.sumFiles(t))
}
