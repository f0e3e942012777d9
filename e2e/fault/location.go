package fault

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/product"
	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// ownLocationDir is the directory of a location of its own: what a dead validator leaves there affects
// no other case.
func (b *Bed) ownLocationDir(name string) string { return filepath.Join(b.dir, "elsewhere", name) }

func beginLocation(ctx context.Context, b *Bed, name string) error {
	if err := os.MkdirAll(filepath.Join(b.ownLocationDir(name), bucket), 0o700); err != nil {
		return err
	}
	return b.apiClient.createObject(ctx, newLocation(name, b.ownLocationDir(name), false))
}

// observeLocation waits until no validation is under way: each leaves something for a moment.
func observeLocation(ctx context.Context, b *Bed, name string) (Facts, error) {
	if err := b.apiClient.awaitAvailable(ctx, name); err != nil {
		return nil, err
	}
	var files []string
	err := pollUntil(ctx, patience, "nothing is left of validations", func() (_ bool, err error) {
		files, err = product.Files(b.ownLocationDir(name))
		// What a dead process was about to write is no object; the store removes it after a day.
		files = slices.DeleteFunc(files, func(file string) bool { return strings.Contains(file, "/.holdfast-tmp/") })
		return len(files) == 0, err
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %v", err, files)
	}
	return Facts{"phase": "Available"}, nil
}

func removeLocation(ctx context.Context, b *Bed, name string) error {
	return b.apiClient.removeObject(ctx, newLocation(name, "", false))
}

// beginDefault makes a location that takes the default from the one that has it.
func beginDefault(ctx context.Context, b *Bed, name string) error {
	if err := os.MkdirAll(filepath.Join(b.ownLocationDir(name), bucket), 0o700); err != nil {
		return err
	}
	return b.apiClient.createObject(ctx, newLocation(name, b.ownLocationDir(name), true))
}

func observeDefault(ctx context.Context, b *Bed, name string) (Facts, error) {
	return Facts{"default": "the new one alone"}, b.apiClient.awaitDefault(ctx, name, location)
}

// awaitDefault waits until one location is noted as the default and another one is not.
func (a *apiClient) awaitDefault(ctx context.Context, name, other string) error {
	return pollUntil(ctx, patience, "location "+name+" is the default", func() (bool, error) {
		var of, not velerov1.BackupStorageLocation
		_, err := a.getObject(ctx, name, &of)
		_, second := a.getObject(ctx, other, &not)
		_, accepted := of.Annotations[holdfast.AnnotationDefault]
		_, noted := not.Annotations[holdfast.AnnotationDefault]
		return of.Spec.Default && accepted && !not.Spec.Default && !noted, errors.Join(err, second)
	})
}

// restoreDefault makes the location of the bed the default again. Nothing says that it was not.
func restoreDefault(ctx context.Context, b *Bed, name string) error {
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:null}},"spec":{"default":true}}`, holdfast.AnnotationWithdrawn)
	if err := b.client.Patch(ctx, newLocation(location, "", true), client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		return err
	}
	if err := b.apiClient.awaitDefault(ctx, location, name); err != nil {
		return err
	}
	return removeLocation(ctx, b, name)
}
