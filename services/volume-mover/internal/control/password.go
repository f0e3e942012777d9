package control

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/services/volume-mover/internal/moverpod"
)

// The Secret with the password of all repositories (Velero 1.18).
const (
	passwordSecret = "velero-repo-credentials"
	passwordKey    = "repository-password"
	// knownPassword is what Velero sets if nobody else does.
	knownPassword = "static-passw0rd"
)

// ensurePassword makes a random password of the repositories if there is none, and warns of one that
// everybody knows.
func (c *Controller) ensurePassword(ctx context.Context) error {
	secret, err := c.findPassword(ctx)
	if err != nil || secret == nil {
		return err
	}
	if string(bytes.TrimSpace(secret.Data[passwordKey])) == knownPassword {
		c.Log.WarnContext(ctx, "The password of the repositories is Velero's default, which everybody knows", "secret", passwordSecret)
		c.Events.Eventf(secret, nil, corev1.EventTypeWarning, "KnownPassword", "Check", "the password of the repositories of volume data is Velero's default, which everybody knows; kopia can change it")
	}
	return nil
}

// readPassword returns the password of the repositories.
func (c *Controller) readPassword(ctx context.Context) ([]byte, error) {
	secret, err := c.findPassword(ctx)
	if err != nil {
		return nil, err
	}
	password := bytes.TrimSpace(secret.Data[passwordKey])
	if len(password) == 0 {
		return nil, &moverpod.RefusalError{Reason: fmt.Sprintf("Secret %s has no password of the repositories under %s", passwordSecret, passwordKey)}
	}
	return password, nil
}

// findPassword returns the Secret, which it makes if there is none.
func (c *Controller) findPassword(ctx context.Context) (*corev1.Secret, error) {
	key := client.ObjectKey{Namespace: c.Movers.Namespace, Name: passwordSecret}
	secret := &corev1.Secret{}
	err := c.Reader.Get(ctx, key, secret)
	if !apierrors.IsNotFound(err) {
		return secret, err
	}
	secret = &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}, Data: map[string][]byte{passwordKey: []byte(rand.Text())},
	}
	err = c.Client.Create(ctx, secret)
	if apierrors.IsAlreadyExists(err) { // another one made it
		secret = &corev1.Secret{}
		err = c.Reader.Get(ctx, key, secret)
	}
	if err != nil {
		return nil, fmt.Errorf("make Secret %s: %w", passwordSecret, err)
	}
	return secret, nil
}
