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
	} {
		require.True(t, kube.IsTransient(fmt.Errorf("read: %w", passes)), passes)
	}
	for _, stays := range []error{
		nil, errors.New("unexpected"), apierrors.NewNotFound(pods, "p"), apierrors.NewForbidden(pods, "p", nil), apierrors.NewBadRequest("no"),
	} {
		require.False(t, kube.IsTransient(stays), stays)
	}
}
