package control

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/moverpod"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/outcome"
)

// hashName returns a name that equal parts share.
func hashName(prefix string, parts ...string) string {
	return fmt.Sprintf("%s%x", prefix, sha256.Sum256([]byte(strings.Join(parts, "\n"))))[:len(prefix)+20]
}

// startRepositoryPod makes a mover Pod that works on a repository of a location, without a volume. Its Secret
// follows: it is owned by the Pod, so that none is left alone.
func (c *Controller) startRepositoryPod(ctx context.Context, location string, pod *corev1.Pod) error {
	if c.Movers.Image == "" {
		return errNoImage
	}
	if _, err := c.buildRepositorySecret(ctx, location, pod); err != nil { // before there is a Pod that waits for it
		return err
	}
	if err := c.Client.Create(ctx, pod); err != nil {
		if kube.IsRefused(err) {
			err = explainRefusal(err, pod)
		}
		return client.IgnoreAlreadyExists(err)
	}
	return c.ensureRepositorySecret(ctx, location, pod)
}

// readResult returns the result of a mover Pod that has ended; one that left none has failed.
func (c *Controller) readResult(ctx context.Context, pod *corev1.Pod) outcome.Result {
	result, ended := readTermination(pod)
	if result == nil {
		result = c.readLog(ctx, pod).Result
	}
	if result == nil {
		return outcome.Result{Phase: outcome.Failed, Message: "the mover Pod ended without a result: " + ended}
	}
	return *result
}

func (c *Controller) buildRepositorySecret(ctx context.Context, location string, pod *corev1.Pod) (*corev1.Secret, error) {
	loc := &velerov1.BackupStorageLocation{}
	if err := c.Reader.Get(ctx, client.ObjectKey{Namespace: c.Movers.Namespace, Name: location}, loc); err != nil {
		return nil, fmt.Errorf("backup storage location %q: %w", location, err)
	}
	password, err := c.readPassword(ctx)
	if err != nil {
		return nil, err
	}
	owned := pod.DeepCopy()
	owned.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}}
	return moverpod.BuildSecret(ctx, c.Reader, c.Movers, owned, loc, password)
}

// ensureRepositorySecret makes the Secret of a Pod that has yet to start, if it is not there.
func (c *Controller) ensureRepositorySecret(ctx context.Context, location string, pod *corev1.Pod) error {
	if pod.Status.Phase == corev1.PodRunning {
		return nil
	}
	err := c.Reader.Get(ctx, client.ObjectKeyFromObject(pod), &corev1.Secret{})
	if !apierrors.IsNotFound(err) {
		return err
	}
	secret, err := c.buildRepositorySecret(ctx, location, pod)
	if err != nil {
		return err
	}
	return client.IgnoreAlreadyExists(c.Client.Create(ctx, secret))
}

// removeRepositoryPod removes the mover Pod and its Secret. A Pod of a lost node is not waited for: the record in the
// bucket keeps a second run of maintenance out while the first may go on, and the others may run twice.
func (c *Controller) removeRepositoryPod(ctx context.Context, pod *corev1.Pod) error {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	if err := client.IgnoreNotFound(c.Client.Delete(ctx, secret)); err != nil {
		return err
	}
	if c.isPodLost(pod) {
		return client.IgnoreNotFound(c.Client.Delete(ctx, pod, client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID}))
	}
	return c.deletePod(ctx, pod)
}
