package kubetest_test

import (
	"context"
	"testing"

	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
)

// The end-to-end suite of the same name runs Conform against a real API server.
func TestConformance(t *testing.T) {
	s := kubetest.Start(t)
	kubetest.Conform(t, kubetest.Site{
		Config:  s.Config(),
		Compact: func(context.Context) error { s.Compact(); return nil },
		Collect: s.Collect,
	})
}
