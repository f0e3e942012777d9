package objectstore_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// signing is a store without methods, whose calls would panic, that signs URLs.
type signing struct{ objectstore.Store }

func (signing) SignGet(context.Context, string, time.Duration) (string, error) {
	return "", errors.New("called")
}

// Stores may resolve "..": no such key reaches the store below the prefix.
func TestAKeyCannotLeaveItsPrefix(t *testing.T) {
	t.Parallel()
	view, err := objectstore.WithPrefix(signing{}, "ours/")
	require.NoError(t, err)
	const key = "a/../../theirs/x"
	ctx, none := t.Context(), strings.NewReader("")
	list := func(objectstore.Info) error { return nil }
	for name, call := range map[string]func() error{
		"Get":          func() error { _, err := view.Get(ctx, key); return err },
		"GetRange":     func() error { _, err := view.GetRange(ctx, key, 1, 1); return err },
		"Stat":         func() error { _, err := view.Stat(ctx, key); return err },
		"Exists":       func() error { _, err := objectstore.Exists(ctx, view, key); return err },
		"List":         func() error { return view.List(ctx, key, list) },
		"ListPrefixes": func() error { _, err := view.ListPrefixes(ctx, key+"/"); return err },
		"Put":          func() error { return view.Put(ctx, key, none, 0) },
		"Create":       func() error { return view.Create(ctx, key, none, 0) },
		"Delete":       func() error { return view.Delete(ctx, key) },
		"Compose":      func() error { _, err := view.Compose(ctx, key, nil); return err },
		"source":       func() error { _, err := view.Compose(ctx, "a", []objectstore.Source{{Key: key}}); return err },
		"SignGet":      func() error { _, err := view.(objectstore.Signer).SignGet(ctx, key, time.Minute); return err },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.ErrorIs(t, call(), objectstore.ErrInvalidKey)
		})
	}
}
