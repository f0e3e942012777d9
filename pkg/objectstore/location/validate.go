package location

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/pluginstore"
)

// ErrForeignContent means that a location's root holds directories that are no part of a backup
// location.
var ErrForeignContent = errors.New("the location holds other top-level directories")

// sharedBucketNote is the message of a usable location whose store cannot create conditionally.
const sharedBucketNote = "the object store ignores conditional creation (If-None-Match): this bucket must not be shared by two clusters"

// pluginBucketNote is that of a location behind a plugin.
const pluginBucketNote = "the protocol of object store plugins has no conditional creation: this bucket must not be shared by two clusters"

// Validate checks that the location can be opened and listed, holds nothing but known top-level
// directories, and can be written to unless it is read-only. note is worth showing on a location
// that is fine.
func (o *Opener) Validate(ctx context.Context, loc *velerov1.BackupStorageLocation) (note string, err error) {
	store, err := o.openStore(ctx, loc)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if err := checkTopLevel(ctx, store); err != nil {
		return "", err
	}
	if loc.Spec.AccessMode == velerov1.LocationModeReadOnly {
		return "", nil
	}
	return probeStore(ctx, store)
}

func checkTopLevel(ctx context.Context, store objectstore.Store) error {
	dirs, err := store.ListPrefixes(ctx, "")
	if err != nil {
		return err
	}
	known := layout.TopLevel()
	foreign := slices.DeleteFunc(dirs, func(d string) bool { return slices.Contains(known, d) })
	if len(foreign) > 0 {
		return fmt.Errorf("%w: %s", ErrForeignContent, strings.Join(foreign[:min(len(foreign), 5)], ", "))
	}
	return nil
}

// prober is a store that finds out by itself whether creation is atomic.
type prober interface {
	Honoured(ctx context.Context) (bool, error)
}

// probeStore writes and removes an object.
func probeStore(ctx context.Context, store objectstore.Store) (note string, err error) {
	if p, ok := objectstore.As[prober](store); ok {
		honoured, err := p.Honoured(ctx)
		if err == nil && !honoured {
			note = sharedBucketNote
		}
		return note, err
	}
	if _, ok := objectstore.As[*pluginstore.Store](store); ok {
		note = pluginBucketNote
	}
	key := probePrefix + rand.Text()
	if err := objectstore.CreateBytes(ctx, store, key, nil); err != nil {
		return "", err
	}
	return note, store.Delete(ctx, key)
}
