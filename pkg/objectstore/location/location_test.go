package location_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/location"
)

const namespace = "velero"

func newOpener(objects ...client.Object) *location.Opener {
	return location.New(fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(objects...).Build(), namespace)
}

// fileLocation returns a location in an existing directory, and that directory.
func fileLocation(t *testing.T) (*velerov1.BackupStorageLocation, string) {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "backups"), 0o755))
	return &velerov1.BackupStorageLocation{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default", UID: "u"},
		Spec: velerov1.BackupStorageLocationSpec{
			Provider: holdfast.ProviderFile, Config: map[string]string{"path": dir},
			StorageType: velerov1.StorageType{ObjectStorage: &velerov1.ObjectStorageLocation{Bucket: "backups"}},
		},
	}, filepath.Join(dir, "backups")
}

func TestOpenAppliesPrefixAndMode(t *testing.T) {
	loc, dir := fileLocation(t)
	loc.Spec.ObjectStorage.Prefix = "/team/one/"
	store, err := newOpener().Open(t.Context(), loc)
	require.NoError(t, err)
	require.NoError(t, objectstore.PutBytes(t.Context(), store, "backups/b/x", []byte("x")))
	require.NoError(t, store.Close())
	require.FileExists(t, filepath.Join(dir, "team/one/backups/b/x"))

	loc.Spec.AccessMode = velerov1.LocationModeReadOnly
	store, err = newOpener().Open(t.Context(), loc)
	require.NoError(t, err)
	require.ErrorIs(t, store.Delete(t.Context(), "backups/b/x"), objectstore.ErrReadOnly)
	require.NoError(t, objectstore.CreateBytes(t.Context(), store, "restores/r/x", []byte("x")), "a restore keeps its files, as in Velero")
	data, err := objectstore.ReadAll(t.Context(), store, "backups/b/x", 10)
	require.NoError(t, err)
	require.Equal(t, "x", string(data))
	require.NoError(t, store.Close())
}

func TestBadSpecsNameTheField(t *testing.T) {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "cloud"},
		Data: map[string][]byte{
			"bad":  []byte("[default]\naws_access_key_id=AKID\n"),
			"role": []byte("[default]\nrole_arn = arn:secret\n"),
		},
	}
	s3 := func(l *velerov1.BackupStorageLocation, config map[string]string) {
		l.Spec.Provider, l.Spec.Config = "aws", config
	}
	for name, tc := range map[string]struct {
		change      func(*velerov1.BackupStorageLocation)
		field, says string
	}{
		"no storage":      {func(l *velerov1.BackupStorageLocation) { l.Spec.ObjectStorage = nil }, "spec.objectStorage", "required"},
		"no bucket":       {func(l *velerov1.BackupStorageLocation) { l.Spec.ObjectStorage.Bucket = "/" }, "spec.objectStorage.bucket", ""},
		"path as bucket":  {func(l *velerov1.BackupStorageLocation) { l.Spec.ObjectStorage.Bucket = "a/b" }, "spec.objectStorage.bucket", "a/b"},
		"dotted bucket":   {func(l *velerov1.BackupStorageLocation) { l.Spec.ObjectStorage.Bucket = ".." }, "spec.objectStorage.bucket", ".."},
		"escaping prefix": {func(l *velerov1.BackupStorageLocation) { l.Spec.ObjectStorage.Prefix = "a/../../b" }, "spec.objectStorage.prefix", ".."},
		"mode":            {func(l *velerov1.BackupStorageLocation) { l.Spec.AccessMode = "WriteOnly" }, "spec.accessMode", "WriteOnly"},
		"empty provider":  {func(l *velerov1.BackupStorageLocation) { l.Spec.Provider = "" }, "spec.provider", "required"},
		"another annotation": {func(l *velerov1.BackupStorageLocation) {
			l.Annotations = map[string]string{holdfast.AnnotationObjectStore: "Plugin"}
		}, "metadata.annotations[holdfast.io/object-store]", `must be "plugin"`},
		"file key":        {func(l *velerov1.BackupStorageLocation) { l.Spec.Config["region"] = "x" }, "spec.config[region]", "unknown"},
		"relative path":   {func(l *velerov1.BackupStorageLocation) { l.Spec.Config["path"] = "here" }, "spec.config[path]", "absolute"},
		"file credential": {func(l *velerov1.BackupStorageLocation) { l.Spec.Credential = &corev1.SecretKeySelector{} }, "spec.credential", ""},
		"s3 key":          {func(l *velerov1.BackupStorageLocation) { s3(l, map[string]string{"regoin": "x"}) }, "spec.config", `"regoin"`},
		"s3 url":          {func(l *velerov1.BackupStorageLocation) { s3(l, map[string]string{"s3Url": "minio:9000"}) }, "spec.config", `"s3Url"`},
		"s3 unsupported":  {func(l *velerov1.BackupStorageLocation) { s3(l, map[string]string{"customerKeyEncryptionFile": "f"}) }, "spec.config", "not supported"},
		"two bundles": {func(l *velerov1.BackupStorageLocation) {
			s3(l, nil)
			l.Spec.ObjectStorage.CACert, l.Spec.ObjectStorage.CACertRef = []byte("x"), &corev1.SecretKeySelector{}
		}, "spec.objectStorage.caCertRef", "together"},
		"no secret":     {func(l *velerov1.BackupStorageLocation) { s3(l, nil); l.Spec.Credential = secretKey("absent", "cloud") }, "spec.credential", `"absent"`},
		"no secret key": {func(l *velerov1.BackupStorageLocation) { s3(l, nil); l.Spec.Credential = secretKey("cloud", "none") }, "spec.credential", `"none"`},
		"half a key":    {func(l *velerov1.BackupStorageLocation) { s3(l, nil); l.Spec.Credential = secretKey("cloud", "bad") }, "spec.credential", "aws_secret_access_key"},
		"role":          {func(l *velerov1.BackupStorageLocation) { s3(l, nil); l.Spec.Credential = secretKey("cloud", "role") }, "spec.credential", "role_arn"},
	} {
		t.Run(name, func(t *testing.T) {
			loc, _ := fileLocation(t)
			tc.change(loc)
			_, err := newOpener(secret).Open(t.Context(), loc)
			field := new(errgrpc.FieldError)
			require.ErrorAs(t, err, &field)
			require.Equal(t, tc.field, field.Field)
			require.Contains(t, field.Message, tc.says)
			require.ErrorContains(t, err, `"default"`, "names the location")
			require.NotContains(t, err.Error(), "AKID")
			require.NotContains(t, err.Error(), "arn:secret")
		})
	}
}

func secretKey(name, key string) *corev1.SecretKeySelector {
	return &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: name}, Key: key}
}

func TestOpenS3WithSecret(t *testing.T) {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "cloud"},
		Data:       map[string][]byte{"cloud": []byte("[default]\naws_access_key_id=AKID\naws_secret_access_key=SECRET\n")},
	}
	loc, _ := fileLocation(t)
	loc.Spec.Provider = "velero.io/aws"
	loc.Spec.Config = map[string]string{"region": "us-east-1", "s3Url": "http://127.0.0.1:1", "publicUrl": "https://public.example", "s3ForcePathStyle": "true"}
	loc.Spec.ObjectStorage.Prefix = "p"
	loc.Spec.Credential = secretKey("cloud", "cloud")
	store, err := newOpener(secret).Open(t.Context(), loc)
	require.NoError(t, err)
	signer, ok := store.(objectstore.Signer)
	require.True(t, ok)
	url, err := signer.SignGet(t.Context(), "backups/b/b.tar.gz", 10*time.Minute)
	require.NoError(t, err)
	require.Contains(t, url, "https://public.example/backups/p/backups/b/b.tar.gz?")
	require.Contains(t, url, "X-Amz-Expires=600")
	require.Contains(t, url, "AKID")
	require.NotContains(t, url, "SECRET")
	require.NoError(t, store.Close())
	loc.Spec.Credential = &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "x"}, Optional: ptr.To(true)}
	store, err = newOpener(secret).Open(t.Context(), loc)
	require.NoError(t, err, "an optional Secret may be missing")
	require.NoError(t, store.Close())
}

func TestValidate(t *testing.T) {
	loc, dir := fileLocation(t)
	o := newOpener()
	note, err := o.Validate(t.Context(), loc)
	require.NoError(t, err)
	require.Empty(t, note)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries, "the probe left something")

	for _, known := range []string{"backups", "restores", "restic", "metadata", "plugins", "kopia"} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, known), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, known, "x"), nil, 0o600))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "plain file"), nil, 0o600))
	_, err = o.Validate(t.Context(), loc)
	require.NoError(t, err, "known directories and plain objects are fine")

	require.NoError(t, os.Mkdir(filepath.Join(dir, "holiday-pictures"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "holiday-pictures", "1.jpg"), nil, 0o600))
	_, err = o.Validate(t.Context(), loc)
	require.ErrorIs(t, err, location.ErrForeignContent)
	require.ErrorContains(t, err, "holiday-pictures")

	require.NoError(t, os.RemoveAll(dir))
	_, err = o.Validate(t.Context(), loc)
	require.ErrorIs(t, err, objectstore.ErrNoBucket)
}

func TestGetAndDefault(t *testing.T) {
	_, err := newOpener().Default(t.Context())
	require.ErrorIs(t, err, location.ErrNoDefault)
	at := func(name string, age time.Duration, isDefault bool) *velerov1.BackupStorageLocation {
		l, _ := fileLocation(t)
		l.Name, l.Spec.Default = name, isDefault
		l.CreationTimestamp = metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(-age))
		return l
	}
	o := newOpener(at("old", 2*time.Hour, true), at("new", time.Hour, true), at("newest", 0, false))
	loc, err := o.Default(t.Context())
	require.NoError(t, err)
	require.Equal(t, "new", loc.Name)
	_, err = o.Get(t.Context(), "absent")
	require.True(t, apierrors.IsNotFound(err))
	require.ErrorContains(t, err, `"absent"`)
	store, err := o.OpenName(t.Context(), "old")
	require.NoError(t, err)
	require.NoError(t, store.Close())
}
