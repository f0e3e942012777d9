package kube

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ClusterUID returns the UID of namespace kube-system, which identifies the cluster in a bucket. A
// namespace that is not found is no apierrors.NotFound: that is for the objects of a job.
func ClusterUID(ctx context.Context, reader client.Reader) (string, error) {
	ns := &corev1.Namespace{}
	if err := reader.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, ns); client.IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("identify the cluster: %w", err)
	}
	if ns.UID == "" {
		return "", errors.New("identify the cluster: namespace kube-system is not found or has no UID")
	}
	return string(ns.UID), nil
}
