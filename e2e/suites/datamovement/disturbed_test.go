package datamovement

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/directorydriver"
	"github.com/holdfast-io/holdfast/e2e/harness/site"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	queuev1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/queue/v1"
)

// holdMovers begins something, and returns when as many movers of it are held.
func (b *bed) holdMovers(t *testing.T, count int, begin func()) (release func()) {
	t.Helper()
	before := b.movers.Held()
	b.movers.Hold()
	begin()
	if !assert.Eventually(t, func() bool { return b.movers.Held()-before == count }, site.Patience, site.Look, "the movers run") {
		b.movers.Release()
		t.FailNow()
	}
	return b.movers.Release
}

// killedMeanwhile kills runners and the controller while snapshots are not ready, while data is moved, and while what was made for that is
// removed or bound, there and back: each claim is moved once.
func (b *bed) killedMeanwhile(t *testing.T) {
	const name, elsewhere = "disturbed", "disturbed-copy"
	want := b.createClaims(t, name, "a", "b")
	b.setBehaviour(t, name, want, directorydriver.Behaviour{NotReady: true})
	b.createBackup(t, name, name)
	require.Eventually(t, func() bool { return len(b.uploads(t, name)) == len(want) }, site.Patience, site.Look, "the requests are made")
	first := b.uploads(t, name)
	b.Kill(t, "volume-mover")
	release := b.holdMovers(t, len(want), func() { b.setBehaviour(t, name, want, directorydriver.Behaviour{}) })
	defer release()
	b.requireShown(t, "backup", name, "velero.io/csi-pvc-backupper persistentvolumeclaims "+name+"/a")
	for _, service := range []string{"backup-runner", "volume-mover"} {
		b.Kill(t, service)
	}
	release()
	b.killOnce(t, "volume-mover", "an upload has ended", func() bool {
		for _, u := range b.uploads(t, name) {
			if u.Status.Phase == completed {
				return true
			}
		}
		return false
	})
	b.BackupCompletes(t, name)
	for claim, u := range b.uploads(t, name) {
		require.Equal(t, first[claim].UID, u.UID, "claim %s is moved once", claim)
	}
	b.requireNothingLeft(t)
	b.requireStored(t, name, want)

	made := map[string]types.UID{}
	release = b.holdMovers(t, len(want), func() { b.Restore(t, elsewhere, name, name, elsewhere) })
	defer release()
	for claim, d := range b.downloads(t, elsewhere) {
		made[claim] = d.UID
	}
	b.requireShown(t, "restore", elsewhere, "velero.io/csi-pvc-restorer persistentvolumeclaims "+elsewhere+"/a")
	for _, service := range []string{"restore-runner", "volume-mover"} {
		b.Kill(t, service)
	}
	release()
	b.killOnce(t, "volume-mover", "a claim gets its volume", func() bool {
		claims := &corev1.PersistentVolumeClaimList{}
		require.NoError(t, b.Client.List(t.Context(), claims, client.InNamespace(elsewhere)))
		return slices.ContainsFunc(claims.Items, func(c corev1.PersistentVolumeClaim) bool { return c.Spec.VolumeName != "" })
	})
	b.requireRestored(t, elsewhere, elsewhere, want)
	for claim, d := range b.downloads(t, elsewhere) {
		require.Equal(t, made[claim], d.UID, "claim %s is filled once", claim)
	}
	b.requireNothingLeft(t)
}

// killOnce kills a service as soon as something is so.
func (b *bed) killOnce(t *testing.T, service, what string, is func() bool) {
	t.Helper()
	require.Eventually(t, is, site.Patience, 10*time.Millisecond, what)
	b.Kill(t, service)
}

// requireShown waits until the description of a job has a running operation.
func (b *bed) requireShown(t *testing.T, kind, name, operation string) {
	t.Helper()
	cli := b.CLI(t)
	cli.Output = nil
	require.Eventually(t, func() bool {
		page, err := cli.Run(t.Context(), kind, "describe", name)
		return err == nil && strings.Contains(page, operation)
	}, site.Patience, 10*site.Look, "%s", operation)
}

func (b *bed) setBehaviour(t *testing.T, namespace string, claims map[string]map[string]string, is directorydriver.Behaviour) {
	t.Helper()
	for claim := range claims {
		b.storage.Driver.Behave(b.storage.Volume(t, namespace, claim), is)
	}
}

// moverKilled has the mover of a backup end without a result. It gets a successor, which takes its time: the rest is to be called later.
func (b *bed) moverKilled(t *testing.T) (end func(*testing.T)) {
	const name = "crashed"
	want := b.createClaims(t, name, "data")
	release := b.holdMovers(t, 1, func() { b.createBackup(t, name, name) })
	defer release()
	b.movers.Crash()
	return func(t *testing.T) {
		b.BackupCompletes(t, name)
		b.requireNothingLeft(t)
		b.requireStored(t, name, want)
	}
}

// requirePending checks that a claim has no volume: an empty one would look like restored data.
func (b *bed) requirePending(t *testing.T, namespace, name string) {
	t.Helper()
	claim := &corev1.PersistentVolumeClaim{}
	require.NoError(t, b.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, claim))
	require.Equal(t, corev1.ClaimPending, claim.Status.Phase)
}

// cancelled has a backup and a restore end with their movers.
func (b *bed) cancelled(t *testing.T) {
	const name, elsewhere = "unwanted", "unwanted-copy"
	queue := queuev1.NewQueueServiceClient(b.Dial(t, "queue-scheduler"))
	b.createClaims(t, name, "data")
	b.createBackup(t, "wanted", name)
	b.BackupCompletes(t, "wanted")
	backup := func(t *testing.T, name string) {
		t.Helper()
		defer b.holdMovers(t, 1, func() { b.createBackup(t, name, name) })()
		_, err := queue.CancelBackup(t.Context(), &queuev1.CancelBackupRequest{Name: name, RequestedBy: "alice"})
		require.NoError(t, err)
		require.Equal(t, velerov1.BackupPhaseFailed, b.BackupEnds(t, name).Status.Phase)
	}
	requireCancelled := func(t *testing.T, name string) {
		t.Helper()
		b.requireNothingLeft(t)
		for _, u := range b.uploads(t, name) {
			require.Equal(t, canceled, u.Status.Phase, u.Status.Message)
		}
	}
	t.Run("a backup", func(t *testing.T) {
		backup(t, name)
		requireCancelled(t, name)
	})
	t.Run("a backup that waits for another snapshot", func(t *testing.T) { // its runner cancels the request, and no operation is listed
		const name = "hasty"
		b.createClaims(t, name, "data", "stuck")
		stuck := b.storage.Volume(t, name, "stuck")
		b.storage.Driver.Behave(stuck, directorydriver.Behaviour{Hang: true})
		backup(t, name)
		b.storage.Driver.Behave(stuck, directorydriver.Behaviour{})
		requireCancelled(t, name)
	})
	t.Run("a restore", func(t *testing.T) {
		defer b.holdMovers(t, 1, func() { b.Restore(t, elsewhere, "wanted", name, elsewhere) })()
		_, err := queue.CancelRestore(t.Context(), &queuev1.CancelRestoreRequest{Name: elsewhere, RequestedBy: "alice"})
		require.NoError(t, err)
		require.Equal(t, velerov1.RestorePhaseFailed, b.RestoreEnds(t, elsewhere).Status.Phase)
		b.requireNothingLeft(t)
		for _, d := range b.downloads(t, elsewhere) {
			require.Equal(t, canceled, d.Status.Phase, d.Status.Message)
		}
		b.requirePending(t, elsewhere, "data")
	})
}
