package badinput

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// badLocations are wrong in one way each; the message has to name it.
func badLocations() map[string]struct {
	spoil func(*velerov1.BackupStorageLocation)
	want  string
} {
	type loc = *velerov1.BackupStorageLocation
	return map[string]struct {
		spoil func(loc)
		want  string
	}{
		"no-bucket":      {func(l loc) { l.Spec.ObjectStorage.Bucket = "missing" }, "spec.objectStorage.bucket"},
		"no-directory":   {func(l loc) { l.Spec.Config["path"] = "/nowhere/at/all" }, "/nowhere/at/all"},
		"file-as-bucket": {func(l loc) { l.Spec.ObjectStorage.Bucket = "a-file" }, "a-file"},
		"unwritable":     {func(l loc) { l.Spec.ObjectStorage.Bucket = "unwritable" }, "metadata"},
		"wrong-provider": {func(l loc) { l.Spec.Provider = "gcp" }, "spec.provider"},
		"unknown-key":    {func(l loc) { l.Spec.Config["regoin"] = "here" }, "spec.config[regoin]"},
		"s3-unknown-key": {func(l loc) { l.Spec.Provider, l.Spec.Config = "aws", map[string]string{"regoin": "x"} }, "regoin"},
		"relative-path":  {func(l loc) { l.Spec.Config["path"] = "here" }, "spec.config[path]"},
		"stray":          {func(l loc) { l.Spec.ObjectStorage.Bucket = "stray" }, "holiday-pictures"},
		"prefix":         {func(l loc) { l.Spec.ObjectStorage.Prefix = "../../etc" }, "spec.objectStorage.prefix"},
		"no-secret": {func(l loc) {
			l.Spec.Provider, l.Spec.Config = "aws", map[string]string{"region": "x"}
			l.Spec.Credential = &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "absent"}, Key: "cloud"}
		}, "absent"},
		"bad-secret": {func(l loc) {
			l.Spec.Provider, l.Spec.Config = "aws", map[string]string{"region": "x"}
			l.Spec.Credential = &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "cloud"}, Key: "cloud"}
		}, "cloud"},
	}
}

// makeLocations creates the bad locations and those that are fine until they are written to.
func (b *bed) makeLocations(t *testing.T) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Join(b.objects, "stray", "holiday-pictures", "1990"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(b.objects, "stray", "holiday-pictures", "1.jpg"), nil, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(b.objects, "a-file"), nil, 0o600))
	// Root may write where permissions say no, but no process can make a directory in a file.
	require.NoError(t, os.MkdirAll(filepath.Join(b.objects, "unwritable"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(b.objects, "unwritable", "metadata"), nil, 0o600))
	secret := newHiddenSecret(server)
	secret.Name, secret.Data = "cloud", map[string][]byte{"cloud": []byte("[default]\naws_access_key_id = " + marker + "\n" + marker + "\n")}
	b.api.createObject(t, secret)
	readOnly := b.newLocation("read-only")
	readOnly.Spec.AccessMode = velerov1.LocationModeReadOnly
	b.api.createObject(t, readOnly)
	for name, bad := range badLocations() {
		loc := b.newLocation(name)
		bad.spoil(loc)
		b.api.createObject(t, loc)
	}
	b.api.waitLocation(t, "read-only", velerov1.LocationPhaseAvailable)
	b.api.waitLocation(t, "no-bucket", velerov1.LocationPhaseUnavailable)
}

func (b *bed) seeLocations(t *testing.T) {
	t.Parallel()
	for name, bad := range badLocations() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			loc := b.api.waitLocation(t, name, velerov1.LocationPhaseUnavailable)
			require.Contains(t, loc.Status.Message, `BackupStorageLocation "`+name+`" is unavailable: `)
			require.Contains(t, loc.Status.Message, bad.want)
		})
	}
}

// lostLocation takes the bucket away after it was found available: what the object says is then
// wrong.
func (b *bed) lostLocation(t *testing.T) {
	t.Parallel()
	require.NoError(t, os.Mkdir(filepath.Join(b.objects, "lost"), 0o700))
	loc := b.newLocation("lost")
	loc.Spec.ObjectStorage.Bucket = "lost"
	b.api.createObject(t, loc)
	b.api.waitLocation(t, "lost", velerov1.LocationPhaseAvailable)
	require.NoError(t, os.Remove(filepath.Join(b.objects, "lost")))
	require.NoError(t, os.WriteFile(filepath.Join(b.objects, "lost"), nil, 0o600))
	b.api.createEstate(t, "lost-bucket")
	backup := b.runBackup(t, "lost-bucket", velerov1.BackupSpec{StorageLocation: "lost", IncludedNamespaces: []string{"lost-bucket"}})
	require.Equal(t, velerov1.BackupPhaseFailed, backup.Status.Phase)
	require.Contains(t, backup.Status.FailureReason, "lost")
}
