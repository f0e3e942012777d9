package snapshots_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/nativesnapshot"
	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost"
	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost/selfplugin"
	"github.com/holdfast-io/holdfast/pkg/plugin"
	"github.com/holdfast-io/holdfast/pkg/plugin/serve"
	"github.com/holdfast-io/holdfast/services/deletion/internal/snapshots"
)

const binary = "array"

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == binary {
		beAnArray()
	}
	goleak.VerifyTestMain(m)
}

// beAnArray is the test binary as a plugin whose snapshots are the files of a directory.
func beAnArray() {
	registry := &plugin.Registry{}
	registry.VolumeSnapshotter("array.io/disks", func(plugin.Env) (plugin.VolumeSnapshotter, error) { return &array{}, nil })
	if err := serve.Run(registry); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

type array struct{ dir, password string }

var errUnused = errors.New("not asked in a deletion")

func (a *array) Init(_ context.Context, config map[string]string) error {
	password, err := os.ReadFile(config["credentialsFile"])
	a.dir, a.password = config["dir"], string(password)
	return err
}

func (a *array) DeleteSnapshot(_ context.Context, id string) error {
	if a.password != "sesame" {
		return errors.New("access denied")
	}
	if id == "deadly" {
		os.Exit(4)
	}
	err := os.Remove(filepath.Join(a.dir, id))
	if os.IsNotExist(err) {
		return nil
	}
	return err
}

func (a *array) CreateVolumeFromSnapshot(context.Context, string, string, string, int64) (string, error) {
	return "", errUnused
}
func (a *array) GetVolumeInfo(context.Context, string, string) (string, int64, error) {
	return "", 0, errUnused
}
func (a *array) CreateSnapshot(context.Context, string, string, map[string]string) (string, error) {
	return "", errUnused
}
func (a *array) GetVolumeID(context.Context, *unstructured.Unstructured) (string, error) {
	return "", errUnused
}
func (a *array) SetVolumeID(context.Context, *unstructured.Unstructured, string) (*unstructured.Unstructured, error) {
	return nil, errUnused
}

// TestAPluginDeletesSnapshots goes through a real process, with the configuration and the
// credentials of the location.
func TestAPluginDeletesSnapshots(t *testing.T) {
	disks, work, plugins := t.TempDir(), t.TempDir(), selfplugin.Directory(t, binary)
	host, err := pluginhost.New(t.Context(), pluginhost.Config{
		Dir: plugins, Namespace: "velero", Environ: os.Environ(), Log: slog.New(slog.DiscardHandler), Clock: clock.RealClock{},
	})
	require.NoError(t, err)
	require.Empty(t, host.Failures())

	b := newBed(t, newSnapshot("disks", "one"), newSnapshot("disks", "two"), newSnapshot("disks", "deadly"), newSnapshot("tapes", "three"), newSnapshot("gone", "four"))
	scheme := runtime.NewScheme()
	require.NoError(t, errors.Join(velerov1.AddToScheme(scheme), corev1.AddToScheme(scheme)))
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "velero", Name: name} }
	secret := &corev1.Secret{ObjectMeta: meta("s"), Data: map[string][]byte{"key": []byte("sesame")}}
	ref := &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "s"}, Key: "key"}
	cluster := fake.NewClientBuilder().WithScheme(scheme).WithObjects(secret,
		&velerov1.VolumeSnapshotLocation{ObjectMeta: meta("disks"), Spec: velerov1.VolumeSnapshotLocationSpec{
			Provider: "array.io/disks", Config: map[string]string{"dir": disks}, Credential: ref}},
		&velerov1.VolumeSnapshotLocation{ObjectMeta: meta("tapes"), Spec: velerov1.VolumeSnapshotLocationSpec{Provider: "array.io/tapes"}},
	).Build()
	b.r.Open = func(ctx context.Context, log *slog.Logger) (snapshots.Locations, func()) {
		session := host.Open(ctx, log)
		return &nativesnapshot.Opener{Reader: cluster, Namespace: "velero", Session: session, WorkDir: work}, session.Close
	}
	for _, name := range []string{"one", "two", "deadly", "another"} {
		require.NoError(t, os.WriteFile(filepath.Join(disks, name), nil, 0o600))
	}

	err = b.runAttempt(t.Context())
	require.ErrorContains(t, err, `snapshot "deadly" of volume "pv-deadly": plugin array.io/disks: DeleteSnapshot: `+pluginhost.ErrCrashed.Error())
	require.ErrorContains(t, err, `snapshot "three" of volume "pv-three": VolumeSnapshotLocation "tapes": spec.provider: "array.io/tapes" needs a volume snapshotter plugin`)
	require.ErrorContains(t, err, `snapshot "four" of volume "pv-four": VolumeSnapshotLocation "gone": `)
	left, err := os.ReadDir(disks)
	require.NoError(t, err)
	require.NotEmpty(t, left)
	var names []string
	for _, f := range left {
		names = append(names, f.Name())
	}
	require.Subset(t, names, []string{"another", "deadly"})
	left, err = os.ReadDir(work)
	require.NoError(t, err)
	require.Empty(t, left, "credentials stay on the disk")

	// A wrong password is reported with the plugin's error, and a corrected one takes effect at the
	// next attempt.
	secret.Data["key"] = []byte("guess")
	require.NoError(t, cluster.Update(t.Context(), secret))
	require.ErrorContains(t, b.runAttempt(t.Context()), "access denied")
	delete(secret.Data, "key")
	require.NoError(t, cluster.Update(t.Context(), secret))
	require.ErrorContains(t, b.runAttempt(t.Context()), `spec.credential.key: Secret "s" has no key "key"`)
	require.NoError(t, client.IgnoreNotFound(cluster.Delete(t.Context(), secret)))
	require.ErrorContains(t, b.runAttempt(t.Context()), "spec.credential: ")
}
