package moverpod_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/moverpod"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/request"
)

const credentials = "[default]\naws_access_key_id=a\naws_secret_access_key=b\n"

func newLocation() *velerov1.BackupStorageLocation {
	return &velerov1.BackupStorageLocation{
		ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "default", ResourceVersion: "7"},
		Spec: velerov1.BackupStorageLocationSpec{
			Provider: "aws", Config: map[string]string{"region": "r", "s3Url": "http://127.0.0.1:1"},
			StorageType: velerov1.StorageType{ObjectStorage: &velerov1.ObjectStorageLocation{Bucket: "b"}},
		},
	}
}

func selectKey(name, key string) *corev1.SecretKeySelector {
	return &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: name}, Key: key}
}

func buildSecret(t *testing.T, loc *velerov1.BackupStorageLocation, secrets ...client.Object) (*corev1.Secret, error) {
	t.Helper()
	r := fake.NewClientBuilder().WithObjects(secrets...).Build()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "b-1", OwnerReferences: []metav1.OwnerReference{{Name: "b-1"}}}}
	return moverpod.BuildSecret(t.Context(), r, moverpod.Settings{}, pod, loc, []byte("secret"))
}

func newSecret(name string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: name}, Data: map[string][]byte{"cloud": []byte(credentials), "other": []byte("PRIVATE")}}
}

// TestAMoverOpensTheLocationOfItsSecret: what the mover reads is what the controller writes.
func TestAMoverOpensTheLocationOfItsSecret(t *testing.T) {
	named := newLocation()
	named.Spec.Credential = selectKey("keys", "cloud")
	shared := newLocation()
	shared.Spec.Credential, shared.Spec.ObjectStorage.CACertRef = selectKey("keys", "cloud"), selectKey("keys", "cloud")
	for name, c := range map[string]struct {
		location *velerov1.BackupStorageLocation
		secrets  []client.Object
		holds    int
	}{
		"its own Secret":             {named, []client.Object{newSecret("keys"), newSecret("cloud-credentials")}, 1},
		"the installation's":         {newLocation(), []client.Object{newSecret("cloud-credentials")}, 1},
		"the environment's":          {newLocation(), nil, 0},
		"two values of one Secret":   {shared, []client.Object{newSecret("keys")}, 1},
		"an installation's, no keys": {newLocation(), []client.Object{&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "cloud-credentials"}}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			secret, err := buildSecret(t, c.location, c.secrets...)
			require.NoError(t, err)
			require.Equal(t, []metav1.OwnerReference{{Name: "b-1"}}, secret.OwnerReferences)
			require.Equal(t, "secret", string(secret.Data["password"]))
			text := string(secret.Data["location.yaml"])
			require.NotContains(t, text, "UFJJVkFURQ", "only what the location names")
			require.Equal(t, c.holds, strings.Count(text, "kind: Secret"))
			path := filepath.Join(t.TempDir(), "location.yaml")
			require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
			store, err := request.OpenLocation(t.Context(), path)
			if c.location == shared { // the certificate is none
				require.ErrorContains(t, err, "caCert holds no PEM certificate")
				return
			}
			require.NoError(t, err)
			require.NoError(t, store.Close())
		})
	}
}

func TestALocationThatNoPodReachesIsRefused(t *testing.T) {
	for message, change := range map[string]func(*velerov1.BackupStorageLocation){
		"which no Pod can mount":   func(l *velerov1.BackupStorageLocation) { l.Spec.Provider = holdfast.ProviderFile },
		"(provider velero.io/gcp)": func(l *velerov1.BackupStorageLocation) { l.Spec.Provider = "gcp" },
		"which mover Pods do not have": func(l *velerov1.BackupStorageLocation) {
			l.Annotations = map[string]string{holdfast.AnnotationObjectStore: "plugin"}
		},
		`Secret "keys" with key "cloud"`: func(l *velerov1.BackupStorageLocation) { l.Spec.Credential = selectKey("keys", "cloud") },
	} {
		loc := newLocation()
		change(loc)
		_, err := buildSecret(t, loc)
		var refused *moverpod.RefusalError
		require.ErrorAs(t, err, &refused)
		require.ErrorContains(t, err, message)
	}
}
