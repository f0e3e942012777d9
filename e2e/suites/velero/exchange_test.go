//go:build velero

package velero_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/compare"
	"github.com/holdfast-io/holdfast/e2e/harness/seed"
	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/layout"
)

// createEstate makes the sample estate and returns its state.
func (b *bed) createEstate(t *testing.T) (scope compare.Scope, before *compare.Snapshot) {
	t.Helper()
	_, err := seed.Apply(t.Context(), b.cluster.RestConfig(), seed.Options{})
	require.NoError(t, err)
	scope = compare.Scope{Namespaces: seed.Options{}.Namespaces(), Selector: seed.Selector()}
	return scope, b.readState(t, scope)
}

func (b *bed) readState(t *testing.T, scope compare.Scope) *compare.Snapshot {
	t.Helper()
	snapshot, err := compare.Take(t.Context(), b.cluster.RestConfig(), scope)
	require.NoError(t, err)
	return snapshot
}

// destroyEstate removes the estate and the objects of both servers, so that only the bucket is left.
func (b *bed) destroyEstate(t *testing.T, scope compare.Scope) {
	t.Helper()
	_, err := seed.Remove(t.Context(), b.cluster.RestConfig())
	require.NoError(t, err)
	require.Empty(t, b.readState(t, scope).Objects, "destroyed")
	require.NoError(t, b.client.DeleteAllOf(t.Context(), &velerov1.Backup{}, client.InNamespace(namespace)))
}

// shortenNames removes the objects whose names are too long for Velero 1.18, which extracts each
// object of a tarball to a file of that name with ".json" behind it: file systems allow 255 bytes.
func (b *bed) shortenNames(t *testing.T, before *compare.Snapshot) {
	t.Helper()
	for key := range before.Objects {
		if len(key.Name) > 255-len(".json") {
			object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
			version, ok := before.Objects[key]["apiVersion"].(string)
			require.True(t, ok, key)
			object.SetGroupVersionKind(schema.FromAPIVersionAndKind(version, key.Kind))
			require.NoError(t, b.client.Delete(t.Context(), object))
			delete(before.Objects, key)
		}
	}
}

// withoutOwners removes the owner references, which Velero 1.18 does not restore: controllers set those
// that they know.
func withoutOwners(s *compare.Snapshot) *compare.Snapshot {
	for _, object := range s.Objects {
		if metadata, ok := object["metadata"].(map[string]any); ok {
			delete(metadata, "ownerReferences")
		}
	}
	return s
}

// awaitSynced waits until the server that runs has found the backup in the bucket.
func (b *bed) awaitSynced(t *testing.T, name string) {
	t.Helper()
	require.Eventually(t, func() bool {
		return b.client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, &velerov1.Backup{}) == nil
	}, patience, look, "backup %s is found in the bucket", name)
}

// Velero's server restores from the bucket alone what Holdfast backed up, every object of it, and
// deletes that backup.
func TestVeleroRestoresABackupOfHoldfast(t *testing.T) {
	b := newBed(t)
	scope, before := b.createEstate(t)
	b.shortenNames(t, before)
	server := b.startHoldfast(t)
	_, err := b.cli.Run(t.Context(), "backup", "create", "ours", "--include-namespaces", strings.Join(scope.Namespaces, ","),
		"--include-cluster-resources", "--storage-location", location, "--wait")
	require.NoError(t, err)
	server.Shutdown()
	b.destroyEstate(t, scope)

	stop := b.startVelero(t)
	defer stop()
	b.awaitSynced(t, "ours")
	b.runVelero(t, "restore", "create", "theirs", "--from-backup", "ours", "--wait")
	var restore velerov1.Restore
	require.NoError(t, b.client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "theirs"}, &restore))
	require.Equal(t, velerov1.RestorePhaseCompleted, restore.Status.Phase, b.runVelero(t, "restore", "describe", "theirs", "--details"))
	require.Zero(t, restore.Status.Errors)

	report := compare.Diff(withoutOwners(before), withoutOwners(b.readState(t, scope)))
	require.Empty(t, report.Missing, "%s", report)
	require.Empty(t, report.Different, "%s", report)

	b.runVelero(t, "backup", "delete", "ours", "--confirm")
	require.Eventually(t, func() bool {
		return client.IgnoreNotFound(b.client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "ours"}, &velerov1.Backup{})) == nil &&
			b.client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "ours"}, &velerov1.Backup{}) != nil
	}, patience, look, "Velero's server deletes the backup")
}

// awaitVerified waits until Holdfast has compared the backup of a schedule with its manifest.
func (b *bed) awaitVerified(t *testing.T, name string) {
	t.Helper()
	var backup velerov1.Backup
	require.Eventually(t, func() bool {
		err := b.client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, &backup)
		return err == nil && backup.Annotations[holdfast.AnnotationVerified] != ""
	}, patience, look, "backup %s is verified", name)
	require.Contains(t, backup.Annotations[holdfast.AnnotationVerified], `"faults":0`)
}

// Holdfast restores from the bucket alone what Velero's server backed up, every object of it. It makes the
// manifest that is missing, and finds the backup whole.
func TestHoldfastRestoresABackupOfVelero(t *testing.T) {
	b := newBed(t)
	scope, before := b.createEstate(t)
	stop := b.startVelero(t)
	b.runVelero(t, "backup", "create", "theirs", "--include-namespaces", strings.Join(scope.Namespaces, ","),
		"--include-cluster-resources", "--snapshot-volumes=false", "--storage-location", location, "--labels", velerov1.LabelScheduleName+"=nightly", "--wait")
	var backup velerov1.Backup
	require.NoError(t, b.client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "theirs"}, &backup))
	require.Equal(t, velerov1.BackupPhaseCompleted, backup.Status.Phase, b.runVelero(t, "backup", "describe", "theirs", "--details"))
	stop()
	b.destroyEstate(t, scope)

	b.startHoldfast(t, "--verify-schedules-every", "1m")
	b.awaitVerified(t, "theirs")
	keys, err := b.s3.Keys(t.Context(), bucket)
	require.NoError(t, err)
	require.Contains(t, strings.Join(keys, "\n"), layout.BackupRebuiltManifest("theirs"))
	_, err = b.cli.Run(t.Context(), "restore", "create", "ours", "--from-backup", "theirs", "--wait")
	require.NoError(t, err)
	status, err := b.cli.Status(t.Context(), "restore", "ours")
	require.NoError(t, err)
	require.Equal(t, "Completed", status.Phase, "%+v", status)
	require.Zero(t, status.Errors)
	report, _, err := compare.DiffLive(t.Context(), b.cluster.RestConfig(), scope, before, patience)
	require.NoError(t, err)
	require.True(t, report.Same(), "%s", report)
}
