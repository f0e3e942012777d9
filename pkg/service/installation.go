package service

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Installation returns what names an installation on a NATS account: a hash of the cluster, that is
// the UID of namespace kube-system, and the server namespace. The reader must not be a cache.
func Installation(reader client.Reader, namespace string) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		system := &corev1.Namespace{}
		if err := reader.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, system); err != nil {
			return "", fmt.Errorf("identify the cluster: %w", err)
		}
		const bytes = 8
		sum := sha256.Sum256([]byte(string(system.UID) + "/" + namespace))
		return hex.EncodeToString(sum[:bytes]), nil
	}
}
