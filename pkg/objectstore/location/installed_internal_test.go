package location

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost"
)

// TestKeysOfTheInstallationSignRequests: a location without a credential was opened with whatever
// the environment of the service had. A file for another cloud leaves it so.
func TestKeysOfTheInstallationSignRequests(t *testing.T) {
	for content, want := range map[string]string{
		"[default]\naws_access_key_id=ID\naws_secret_access_key=TOPSECRET\n": "ID",
		"AZURE_CLIENT_SECRET=TOPSECRET\n":                                    "",
		"":                                                                   "",
	} {
		var objects []client.Object
		if content != "" {
			objects = append(objects, &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "cloud-credentials"}, Data: map[string][]byte{"cloud": []byte(content)},
			})
		}
		o := New(fake.NewClientBuilder().WithObjects(objects...).Build(), "velero")
		provider, err := o.credentialsProvider(t.Context(), nil, "")
		require.NoError(t, err)
		if want == "" {
			require.Nil(t, provider, "the SDK's own chain")
			continue
		}
		keys, err := provider.Retrieve(t.Context())
		require.NoError(t, err)
		require.Equal(t, want, keys.AccessKeyID)
	}
	o := New(fake.NewClientBuilder().WithObjects(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "cloud-credentials"}, Data: map[string][]byte{"cloud": []byte("[default]\nrole_arn=TOPSECRET\n")},
	}).Build(), "velero")
	_, err := o.credentialsProvider(t.Context(), nil, "")
	require.ErrorContains(t, err, `spec.credential: Secret "cloud-credentials", key "cloud": line 2`)
	require.NotContains(t, err.Error(), "TOPSECRET")
}

// A plugin without the key credentialsFile refused a configuration with it, although the location
// had no credential.
func TestOnlyALocationsOwnCredentialIsInItsConfiguration(t *testing.T) {
	o := New(fake.NewClientBuilder().WithObjects(
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "cloud-credentials"}, Data: map[string][]byte{"cloud": []byte("k")}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "own"}, Data: map[string][]byte{"k": []byte("k")}},
	).Build(), "velero")
	o.plugins = &plugins{workDir: t.TempDir()}
	for want, ref := range map[string]*corev1.SecretKeySelector{
		pluginhost.InstalledCredentials: nil,
		"credentialsFile":               {LocalObjectReference: corev1.LocalObjectReference{Name: "own"}, Key: "k"},
	} {
		loc := &velerov1.BackupStorageLocation{}
		loc.Spec.Credential, loc.Spec.ObjectStorage = ref, &velerov1.ObjectStorageLocation{Bucket: "b"}
		config, forget, err := o.pluginConfig(t.Context(), loc, bucketPlace{bucket: "b"})
		require.NoError(t, err)
		require.NotEmpty(t, config[want])
		delete(config, want)
		require.Equal(t, map[string]string{"bucket": "b", "prefix": ""}, config)
		require.NoError(t, forget())
	}
}
