package badinput

import (
	"crypto/rand"
	"encoding/base64"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// damagedMember changes bytes of a tarball of Holdfast's own, which is read by range: only the
// objects of the gzip member that was hit are lost, and each of them is named.
func (b *bed) damagedMember(t *testing.T) {
	t.Parallel()
	b.createEstate(t, "member")
	noise := make([]byte, 500<<10)
	_, _ = rand.Read(noise) // never fails
	big := []string{"zz-big-1", "zz-big-2", "zz-big-3"}
	for _, name := range big {
		b.createObject(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "member", Name: name},
			Data: map[string]string{"noise": base64.StdEncoding.EncodeToString(noise)}})
	}
	backup := b.runBackup(t, "member", velerov1.BackupSpec{IncludedNamespaces: []string{"member"}})
	require.Equal(t, velerov1.BackupPhaseCompleted, backup.Status.Phase, backup.Status.FailureReason)
	path := filepath.Join(b.bucketDir(), "backups", "member", "member.tar.gz")
	require.NoError(t, os.Chmod(path, 0o600))
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	for i := range 16 {
		raw[len(raw)-300<<10+i] ^= 0x55 // inside the last of the big ones
	}
	require.NoError(t, os.WriteFile(path, raw, 0o600))

	restore := b.runRestore(t, "member", velerov1.RestoreSpec{BackupName: "member", NamespaceMapping: map[string]string{"member": "member-again"}})
	r := b.readResults(t, "restores/member/restore-member-results.gz")
	require.Equal(t, velerov1.RestorePhasePartiallyFailed, restore.Status.Phase, "%s %v", restore.Status.FailureReason, r)
	b.isBack(t, "member-again")
	lost := 0
	for _, name := range big {
		if b.Client.Get(t.Context(), client.ObjectKey{Namespace: "member-again", Name: name}, &corev1.ConfigMap{}) != nil {
			lost++
		}
	}
	require.Equal(t, 1, lost)
	require.Len(t, r.messagesOf("errors"), 1)
	require.Contains(t, r.messagesOf("errors")[0], "zz-big-")
}
