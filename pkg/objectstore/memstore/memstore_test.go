package memstore_test

import (
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/storetest"
)

func TestConformance(t *testing.T) {
	storetest.Run(t, func(testing.TB) objectstore.Store { return memstore.New() })
}

func TestUploads(t *testing.T) {
	storetest.RunUploads(t, func(testing.TB) (objectstore.Store, func(string)) {
		s := memstore.New()
		return s, s.LeaveUpload
	})
}

func TestFaults(t *testing.T) {
	s := memstore.New()
	s.Set("a", []byte("content"))
	boom := errors.New("boom")
	s.Inject(func(op memstore.Op, key string) error {
		if op == memstore.OpRead || (op == memstore.OpDelete && key == "a") {
			return boom
		}
		return nil
	})
	rc, err := s.Get(t.Context(), "a")
	require.NoError(t, err)
	_, err = io.ReadAll(rc)
	require.ErrorIs(t, err, boom)
	require.ErrorIs(t, s.Delete(t.Context(), "a"), boom)
	n, err := objectstore.DeletePrefix(t.Context(), s, "")
	require.ErrorIs(t, err, boom)
	require.Zero(t, n)
	s.Inject(nil)
	require.NoError(t, s.Delete(t.Context(), "a"))
	require.Equal(t, 3, s.Calls(memstore.OpDelete))
	require.Empty(t, s.Keys())
}
