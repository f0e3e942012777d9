package location

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// TestKeysOfTheInstallationSignRequests: a location without a credential was opened with whatever the environment of the service had. A file for
// another cloud leaves it so.
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
		provider, err := o.credentials(t.Context(), nil, "")
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
	_, err := o.credentials(t.Context(), nil, "")
	require.ErrorContains(t, err, `spec.credential: Secret "cloud-credentials", key "cloud": line 2`)
	require.NotContains(t, err.Error(), "TOPSECRET")
}
