package location_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/location"
	"github.com/holdfast-io/holdfast/pkg/objectstore/pluginstore/directoryplugin"
)

func TestMain(m *testing.M) {
	if served, err := directoryplugin.Serve(); served {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// pluginOpener opens locations with the plugin, and keeps its files in work.
func pluginOpener(t *testing.T, limits pluginhost.Limits, objects ...client.Object) (o *location.Opener, work string) {
	t.Helper()
	work = t.TempDir()
	c := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(objects...).Build()
	return location.New(c, namespace, location.WithPlugins(directoryplugin.Host(t, limits), slog.New(slog.DiscardHandler), work)), work
}

// pluginLocation is fileLocation, served by the plugin.
func pluginLocation(t *testing.T) (*velerov1.BackupStorageLocation, string) {
	t.Helper()
	loc, dir := fileLocation(t)
	loc.Spec.Provider = directoryplugin.Name
	loc.Spec.Config = map[string]string{directoryplugin.ConfigDir: filepath.Dir(dir)}
	return loc, dir
}

func TestALocationIsServedByItsProvidersPlugin(t *testing.T) {
	o, _ := pluginOpener(t, pluginhost.Limits{})
	loc, dir := pluginLocation(t)
	loc.Spec.ObjectStorage.Prefix = "/team/"
	note, err := o.Validate(t.Context(), loc)
	require.NoError(t, err)
	require.Contains(t, note, "must not be shared by two clusters")

	ctx, cancel := context.WithCancel(t.Context())
	store, err := o.Open(ctx, loc)
	require.NoError(t, err)
	cancel() // only the opening was this context's
	require.NoError(t, objectstore.CreateBytes(t.Context(), store, "backups/b/x", []byte("x")))
	require.NoError(t, store.Close())
	require.FileExists(t, filepath.Join(dir, "team/backups/b/x"))

	loc.Spec.AccessMode = velerov1.LocationModeReadOnly
	store, err = o.Open(t.Context(), loc)
	require.NoError(t, err)
	require.ErrorIs(t, store.Delete(t.Context(), "backups/b/x"), objectstore.ErrReadOnly)
	there, err := objectstore.Exists(t.Context(), store, "backups/b/x")
	require.NoError(t, err)
	require.True(t, there)
	require.NoError(t, store.Close())

	require.NoError(t, os.MkdirAll(filepath.Join(dir, "team/pictures"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "team/pictures/1"), []byte("x"), 0o600))
	_, err = o.Validate(t.Context(), loc)
	require.ErrorIs(t, err, location.ErrForeignContent)
}

func TestTheAnnotationHasAPluginServeAProviderOfOurs(t *testing.T) {
	o, _ := pluginOpener(t, pluginhost.Limits{})
	loc, _ := fileLocation(t)
	_, err := o.Validate(t.Context(), loc)
	require.NoError(t, err)
	loc.Annotations = map[string]string{holdfast.AnnotationObjectStore: "plugin"}
	_, err = o.Validate(t.Context(), loc)
	require.ErrorContains(t, err, holdfast.ProviderFile, "of which there is no plugin")
	loc.Spec.Provider, loc.Spec.Config = directoryplugin.Name, map[string]string{directoryplugin.ConfigDir: loc.Spec.Config["path"]}
	_, err = o.Validate(t.Context(), loc)
	require.NoError(t, err)
}

func TestAMissingPluginIsNamedWithWhatToDo(t *testing.T) {
	with, _ := pluginOpener(t, pluginhost.Limits{})
	for name, o := range map[string]*location.Opener{"others": with, "none": newOpener()} {
		loc, _ := fileLocation(t)
		loc.Spec.Provider = "gcp"
		_, err := o.Validate(t.Context(), loc)
		field := new(errgrpc.FieldError)
		require.ErrorAs(t, err, &field, name)
		require.Equal(t, "spec.provider", field.Field)
		require.Contains(t, field.Message, `"velero.io/gcp"`)
		require.Contains(t, field.Message, "--plugin-dir")
	}
}

// TestCredentialsOfTheInstallationServeEveryLocation: `velero install` puts the cloud's keys into
// one Secret and names it in no location, so that an installation that changed over had none.
func TestCredentialsOfTheInstallationServeEveryLocation(t *testing.T) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "cloud-credentials"}, Data: map[string][]byte{"cloud": []byte("TOPSECRET")}}
	own := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "own"}, Data: map[string][]byte{"keys": []byte("OWN")}}
	o, work := pluginOpener(t, pluginhost.Limits{}, secret, own)
	for want, ref := range map[string]*corev1.SecretKeySelector{"TOPSECRET": nil, "OWN": secretKey("own", "keys")} {
		loc, _ := pluginLocation(t)
		loc.Spec.Credential = ref
		store, err := o.Open(t.Context(), loc)
		require.NoError(t, err)
		files, err := filepath.Glob(filepath.Join(work, "credentials-*", "*"))
		require.NoError(t, err)
		require.Len(t, files, 1)
		data, err := os.ReadFile(files[0])
		require.NoError(t, err)
		require.Equal(t, want, string(data))
		require.NoError(t, store.Close())
	}
	none, work := pluginOpener(t, pluginhost.Limits{})
	loc, _ := pluginLocation(t)
	store, err := none.Open(t.Context(), loc)
	require.NoError(t, err)
	left, err := os.ReadDir(work)
	require.NoError(t, err)
	require.Empty(t, left, "none is there")
	require.NoError(t, store.Close())
}

func TestCredentialsAreOnTheDiskWhileTheStoreIsOpen(t *testing.T) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "cloud"}, Data: map[string][]byte{"keys": []byte("TOPSECRET")}}
	o, work := pluginOpener(t, pluginhost.Limits{}, secret)
	loc, _ := pluginLocation(t)
	loc.Spec.Credential = secretKey("cloud", "keys")
	store, err := o.Open(t.Context(), loc)
	require.NoError(t, err)
	files, err := filepath.Glob(filepath.Join(work, "credentials-*", "*"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	data, err := os.ReadFile(files[0])
	require.NoError(t, err)
	require.True(t, bytes.Equal(secret.Data["keys"], data))
	info, err := os.Stat(files[0])
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	require.NoError(t, objectstore.PutBytes(t.Context(), store, "k", []byte("x")), "the plugin reads the file at its Init")
	require.NoError(t, store.Close())
	left, err := os.ReadDir(work)
	require.NoError(t, err)
	require.Empty(t, left)

	loc.Spec.Credential = secretKey("absent", "keys")
	_, err = o.Open(t.Context(), loc)
	require.ErrorContains(t, err, "spec.credential")
	loc.Spec.Provider, loc.Spec.Credential = "gcp", secretKey("cloud", "keys")
	_, err = o.Open(t.Context(), loc)
	require.ErrorContains(t, err, "velero.io/gcp")
	left, err = os.ReadDir(work)
	require.NoError(t, err)
	require.Empty(t, left, "nothing stays of a location that is not opened")
}

// TestAHungOrCrashingPluginMakesItsLocationUnavailable and no more: the opener goes on.
func TestAHungOrCrashingPluginMakesItsLocationUnavailable(t *testing.T) {
	o, work := pluginOpener(t, pluginhost.Limits{Storage: 2 * time.Second, Stop: 100 * time.Millisecond})
	for fault, want := range map[string]error{
		"hang ListCommonPrefixes": pluginhost.ErrTimeout, "exit ListCommonPrefixes": pluginhost.ErrCrashed, "exit PutObject": pluginhost.ErrCrashed,
	} {
		loc, _ := pluginLocation(t)
		loc.Spec.Config[directoryplugin.ConfigFault] = fault
		_, err := o.Validate(t.Context(), loc)
		require.ErrorIs(t, err, want, fault)
		require.ErrorContains(t, err, "plugin "+directoryplugin.Name)
	}
	loc, _ := pluginLocation(t)
	loc.Spec.Config[directoryplugin.ConfigFault] = "hang ListCommonPrefixes"
	ctx, cancel := context.WithTimeoutCause(t.Context(), 500*time.Millisecond, errors.New("took too long"))
	defer cancel()
	_, err := o.Validate(ctx, loc)
	require.ErrorContains(t, err, "took too long")
	loc.Spec.Config[directoryplugin.ConfigFault] = ""
	_, err = o.Validate(t.Context(), loc)
	require.NoError(t, err)
	left, err := os.ReadDir(work)
	require.NoError(t, err)
	require.Empty(t, left)
}
