package artifact

import (
	"context"
	"crypto/rand"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// SecretName is the Secret in the server namespace that holds the signing key, under secretKey.
const SecretName = "holdfast-artifact-key"

const secretKey = "key"

// LoadKey returns the shared signing key, creating the Secret when it does not exist. Of several
// replicas that create it at once the first wins. r must not be a cache.
func LoadKey(ctx context.Context, r client.Reader, w client.Writer, namespace string) ([]byte, error) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: SecretName}}
	name := client.ObjectKeyFromObject(secret)
	err := r.Get(ctx, name, secret)
	if apierrors.IsNotFound(err) {
		key := make([]byte, KeyBytes)
		_, _ = rand.Read(key) // documented never to fail
		secret.Data = map[string][]byte{secretKey: key}
		secret.Type = corev1.SecretTypeOpaque
		if err = w.Create(ctx, secret); apierrors.IsAlreadyExists(err) {
			err = r.Get(ctx, name, secret)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("artifact signing key: %w", err)
	}
	key := secret.Data[secretKey]
	if len(key) < KeyBytes {
		return nil, fmt.Errorf("artifact signing key: Secret %s, key %q: %d bytes, at least %d are needed; delete the Secret to get a new one",
			name, secretKey, len(key), KeyBytes)
	}
	return key, nil
}
