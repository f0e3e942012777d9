package kube_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/pkg/kube"
)

// meeting answers a list of ConfigMaps only while a list of Secrets is read, and the reverse.
type meeting struct {
	client.Reader
	met    chan struct{}
	fail   error
	ending chan error
}

func (m *meeting) List(ctx context.Context, list client.ObjectList, _ ...client.ListOption) error {
	if _, secrets := list.(*corev1.SecretList); secrets && m.fail != nil {
		return m.fail
	}
	select {
	case m.met <- struct{}{}:
		return nil
	case <-m.met:
		return nil
	case <-ctx.Done():
		m.ending <- context.Cause(ctx)
		return ctx.Err()
	}
}

func TestListsAreReadAtOnce(t *testing.T) {
	lists := kube.ConcurrentLists{Reader: &meeting{met: make(chan struct{})}}
	require.NoError(t, lists.Lists(t.Context(), []client.ObjectList{&corev1.ConfigMapList{}, &corev1.SecretList{}}))
}

func TestAListThatFailsCancelsTheOthers(t *testing.T) {
	away := errors.New("away")
	m := &meeting{met: make(chan struct{}), fail: away, ending: make(chan error, 1)}
	require.ErrorIs(t, kube.ConcurrentLists{Reader: m}.Lists(t.Context(), []client.ObjectList{&corev1.ConfigMapList{}, &corev1.SecretList{}}), away)
	require.Error(t, <-m.ending)
}
