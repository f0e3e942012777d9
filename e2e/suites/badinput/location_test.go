package badinput

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-io/holdfast/e2e/harness/site"
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
		"file-as-bucket": {func(l loc) { l.Spec.ObjectStorage.Bucket = "a-file" }, "a-file"},
		"unwritable":     {func(l loc) { l.Spec.ObjectStorage.Bucket = "unwritable" }, "metadata"},
		"stray":          {func(l loc) { l.Spec.ObjectStorage.Bucket = "stray" }, "holiday-pictures"},
		"bad-secret": {func(l loc) {
			l.Spec.Provider, l.Spec.Config = "aws", map[string]string{"region": "x"}
			l.Spec.Credential = &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "cloud"}, Key: "cloud"}
		}, "cloud"},
	}
}

// makeLocations creates the bad locations and those that are fine until they are written to.
func (b *bed) makeLocations(t *testing.T) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Join(b.dir, "stray", "holiday-pictures", "1990"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(b.dir, "stray", "holiday-pictures", "1.jpg"), nil, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(b.dir, "a-file"), nil, 0o600))
	// Root may write where permissions say no, but no process can make a directory in a file.
	require.NoError(t, os.MkdirAll(filepath.Join(b.dir, "unwritable"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(b.dir, "unwritable", "metadata"), nil, 0o600))
	secret := newHiddenSecret(site.Server)
	secret.Name, secret.Data = "cloud", map[string][]byte{"cloud": []byte("[default]\naws_access_key_id = " + marker + "\n" + marker + "\n")}
	b.createObject(t, secret)
	readOnly := b.newLocation("read-only")
	readOnly.Spec.AccessMode = velerov1.LocationModeReadOnly
	b.createObject(t, readOnly)
	for name, bad := range badLocations() {
		loc := b.newLocation(name)
		bad.spoil(loc)
		b.createObject(t, loc)
	}
	b.waitLocation(t, "read-only", velerov1.LocationPhaseAvailable)
	b.waitLocation(t, "no-bucket", velerov1.LocationPhaseUnavailable)
}

func (b *bed) seeLocations(t *testing.T) {
	t.Parallel()
	for name, bad := range badLocations() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			loc := b.waitLocation(t, name, velerov1.LocationPhaseUnavailable)
			require.Contains(t, loc.Status.Message, `BackupStorageLocation "`+name+`" is unavailable: `)
			require.Contains(t, loc.Status.Message, bad.want)
		})
	}
}
