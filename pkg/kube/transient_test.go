package kube_test

import (
	"errors"
	"fmt"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/kube"
)

func TestIsTransient(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	for _, passes := range []error{
		&url.Error{Op: "Get", URL: "https://server", Err: errors.New("connection refused")},
		apierrors.NewServiceUnavailable("starting"),
		apierrors.NewTooManyRequests("busy", 1),
		apierrors.NewInternalError(errors.New("leader changed")),
		apierrors.NewServerTimeout(pods, "get", 1),
		apierrors.NewConflict(pods, "p", errors.New("changed")),
		apierrors.NewUnauthorized("token of a Pod that is gone"),
	} {
		require.True(t, kube.IsTransient(fmt.Errorf("read: %w", passes)), passes)
	}
	for _, stays := range []error{
		nil, errors.New("unexpected"), apierrors.NewNotFound(pods, "p"), apierrors.NewForbidden(pods, "p", nil), apierrors.NewBadRequest("no"),
	} {
		require.False(t, kube.IsTransient(stays), stays)
	}
}

func TestIsRefused(t *testing.T) {
	backups := schema.GroupResource{Resource: "backups"}
	for _, final := range []error{
		apierrors.NewForbidden(backups, "b", nil), apierrors.NewBadRequest("no"), apierrors.NewRequestEntityTooLargeError("limit is 3145728"),
		apierrors.NewInvalid(schema.GroupKind{Kind: "Backup"}, "b", nil), apierrors.NewInternalError(errors.New("etcdserver: request is too large")),
	} {
		require.True(t, kube.IsRefused(fmt.Errorf("patch: %w", final)), final)
	}
	for _, other := range []error{
		nil, errors.New("unexpected"), apierrors.NewNotFound(backups, "b"), apierrors.NewUnauthorized("expired"), apierrors.NewTooManyRequests("busy", 1),
		apierrors.NewConflict(backups, "b", errors.New("changed")), apierrors.NewInternalError(errors.New("failed calling webhook")),
		apierrors.NewServiceUnavailable("starting"), &url.Error{Op: "Patch", URL: "https://server", Err: errors.New("connection refused")},
	} {
		require.False(t, kube.IsRefused(other), other)
	}
}
