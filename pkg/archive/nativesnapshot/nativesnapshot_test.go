package nativesnapshot_test

import (
	"encoding/json"
	"errors"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/nativesnapshot"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost"
	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit/limittest"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
)

// The text is as Velero 1.18 writes it.
func TestVelerosFileIsRead(t *testing.T) {
	const text = `[{"spec":{"backupName":"b","backupUID":"u","location":"aws","persistentVolumeName":"pv","providerVolumeID":"vol-1","volumeType":"gp3","volumeAZ":"z1","volumeIOPS":300},"status":{"providerSnapshotID":"snap-1","phase":"Completed"}}]`
	store := memstore.New()
	require.NoError(t, objectstore.CreateBytes(t.Context(), store, layout.BackupVolumeSnapshots("b"), limittest.PackedText(t, text+"\n")))
	got, err := nativesnapshot.Read(t.Context(), store, "b")
	require.NoError(t, err)
	again, err := json.Marshal(got)
	require.NoError(t, err)
	require.Equal(t, text, string(again))
}

func TestMalformedLists(t *testing.T) {
	for name, data := range map[string][]byte{
		"no gzip": []byte("["), "no JSON": limittest.PackedText(t, "["), "an object": limittest.PackedText(t, `{"spec":{}}`), "cut short": limittest.PackedText(t, "[]")[:12],
		"too large": make([]byte, 17<<20),
	} {
		store := memstore.New()
		require.NoError(t, objectstore.CreateBytes(t.Context(), store, layout.BackupVolumeSnapshots("b"), data))
		_, err := nativesnapshot.Read(t.Context(), store, "b")
		require.ErrorIs(t, err, nativesnapshot.ErrMalformed, name)
	}
	store, away := memstore.New(), errors.New("bucket is away")
	store.Inject(func(memstore.Op, string) error { return away })
	_, err := nativesnapshot.Read(t.Context(), store, "b")
	require.ErrorIs(t, err, away)
	require.NotErrorIs(t, err, nativesnapshot.ErrMalformed)
}

// A list of 90 KiB unpacks to empty objects of three bytes, each of which becomes a struct of 200
// and more.
func TestAForgedListCostsBoundedMemory(t *testing.T) {
	for name, element := range map[string]string{"empty": "{}", "null": "null"} {
		store := memstore.New()
		require.NoError(t, objectstore.CreateBytes(t.Context(), store, layout.BackupVolumeSnapshots("b"), limittest.Packed(t, limittest.List("[", element, "]", 60<<20))))
		var err error
		require.Less(t, limittest.Allocated(func() { _, err = nativesnapshot.Read(t.Context(), store, "b") }), uint64(200<<20), name)
		require.ErrorIs(t, err, nativesnapshot.ErrMalformed, name)
	}
}

// locationSession is a provider "known" that shows what it was configured with.
type locationSession struct{ configs []map[string]string }

func (s *locationSession) VolumeSnapshotter(provider string, config map[string]string) (action.VolumeSnapshotter, error) {
	if provider != "known" {
		return nil, pluginhost.ErrUnknown
	}
	s.configs = append(s.configs, config)
	return struct{ action.VolumeSnapshotter }{}, nil
}

func TestLocationsAreOpenedWithTheirCredentials(t *testing.T) {
	location := func(name, provider string, credential *corev1.SecretKeySelector) *velerov1.VolumeSnapshotLocation {
		return &velerov1.VolumeSnapshotLocation{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: name},
			Spec: velerov1.VolumeSnapshotLocationSpec{Provider: provider, Config: map[string]string{"region": "x"}, Credential: credential}}
	}
	key := func(secret, key string, optional bool) *corev1.SecretKeySelector {
		return &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: secret}, Key: key, Optional: ptr.To(optional)}
	}
	cluster := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "s"}, Data: map[string][]byte{"k": []byte("sesame")}},
		location("plain", "known", nil), location("secret", "known", key("s", "k", false)), location("foreign", "unknown", nil),
		location("no secret", "known", key("t", "k", false)), location("no key", "known", key("s", "l", false)),
		location("optional secret", "known", key("t", "k", true)), location("optional key", "known", key("s", "l", true)),
	).Build()
	made, dir := &locationSession{}, t.TempDir()
	o := &nativesnapshot.Opener{Reader: cluster, Namespace: "velero", Session: made, WorkDir: dir}
	for name, want := range map[string]string{
		"absent": `VolumeSnapshotLocation "absent": `, "no secret": "spec.credential: ", "no key": `spec.credential.key: Secret "s" has no key "l"`,
		"foreign": `spec.provider: "unknown" needs a volume snapshotter plugin of that name`,
	} {
		_, err := o.Open(t.Context(), name)
		require.ErrorContains(t, err, want)
		missing := new(nativesnapshot.NoPluginError)
		require.Equal(t, name == "foreign", errors.As(err, &missing))
	}
	require.Empty(t, made.configs)
	for _, name := range []string{"plain", "optional secret", "optional key", "plain"} {
		_, err := o.Open(t.Context(), name)
		require.NoError(t, err)
	}
	require.Len(t, made.configs, 3, "each once")
	for _, config := range made.configs {
		require.Equal(t, map[string]string{"region": "x"}, config)
	}
	_, err := o.Open(t.Context(), "secret")
	require.NoError(t, err)
	file := made.configs[3]["credentialsFile"]
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, "sesame", string(text))
	info, err := os.Stat(file)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	require.NoError(t, o.Close())
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
}

// As for object stores: only the location's own credential is in its configuration.
func TestTheInstallationsCredentialsAreNotInTheConfiguration(t *testing.T) {
	loc := &velerov1.VolumeSnapshotLocation{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "plain"}}
	loc.Spec.Provider = "known"
	cluster := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "cloud-credentials"}, Data: map[string][]byte{"cloud": []byte("sesame")}}, loc).Build()
	made := &locationSession{}
	o := &nativesnapshot.Opener{Reader: cluster, Namespace: "velero", Session: made, WorkDir: t.TempDir()}
	_, err := o.Open(t.Context(), "plain")
	require.NoError(t, err)
	require.Len(t, made.configs[0], 1)
	text, err := os.ReadFile(made.configs[0][pluginhost.InstalledCredentials])
	require.NoError(t, err)
	require.Equal(t, "sesame", string(text))
	require.NoError(t, o.Close())
}

var _ nativesnapshot.Session = (*pluginhost.Session)(nil)

// FuzzRead: what the list of a backup costs is bounded, and what is wrong with it is ErrMalformed.
func FuzzRead(f *testing.F) {
	f.Add([]byte(`[{"spec":{"backupName":"b","volumeIOPS":300},"status":{"providerSnapshotID":"snap-1"}}]`))
	f.Add([]byte(`[{},null,[]]`))
	f.Fuzz(func(t *testing.T, text []byte) {
		store := memstore.New()
		for _, data := range [][]byte{text, limittest.PackedText(t, string(text))} {
			store.Set(layout.BackupVolumeSnapshots("b"), data)
			var err error
			require.Less(t, limittest.Allocated(func() { _, err = nativesnapshot.Read(t.Context(), store, "b") }), uint64(64<<20+2000*len(text)))
			if err != nil {
				require.ErrorIs(t, err, nativesnapshot.ErrMalformed)
			}
		}
	})
}
