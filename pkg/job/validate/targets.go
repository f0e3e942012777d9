package validate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/archive/tarball"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/spec/selection"
)

// Limits on reading the bucket, which the queue waits for.
const (
	listingTime  = 15 * time.Second
	tarballBytes = 32 << 20 // of a backup without a manifest; a larger one is not read
	unpackedSize = 1 << 30
	maxFound     = 100_000 // namespaces of such a tarball; one with more counts as unknown
)

// Targets returns the namespaces a restore writes to, sorted: the mapped names where the spec lists
// them and the ledger has room for them, else all.
func Targets(spec *velerov1.RestoreSpec) []string {
	if len(spec.IncludedNamespaces) == 0 || slices.ContainsFunc(spec.IncludedNamespaces, selection.IsPattern) {
		return []string{selection.All}
	}
	var names []string
	for _, name := range spec.IncludedNamespaces {
		if name != "" && !slices.Contains(spec.ExcludedNamespaces, name) {
			names = append(names, name)
		}
	}
	return mappedNames(names, spec.NamespaceMapping)
}

// boundedNames counts a restore that writes to more namespaces than the ledger stores as one of all
// namespaces.
func boundedNames(names []string) []string {
	if ledger.Size(names) > ledger.MaxNamespaces {
		return []string{selection.All}
	}
	return names
}

// ErrClusterUnread means that the API server did not answer which location holds a backup: the namespaces of a restore are found by
// asking again, unlike where the bucket does not answer.
var ErrClusterUnread = errors.New("the backup and its location were not read from the API server")

// Targets returns the namespaces a restore writes to, sorted: those of the items that it names, if nothing else
// comes along. If the spec does not list them they are those of the backup's manifest, or of its tarball if that is small, else [selection.All];
// none at all means that the restore has only cluster-scoped objects. An error means that the
// backup could not be read, or not in a short time: the function Targets returns then what is
// certain. Where the manifest shows that the backup has no cluster-scoped object but namespaces, the restore
// is marked, so that no later one waits for it.
func (v *Validator) Targets(ctx context.Context, r *velerov1.Restore) ([]string, error) {
	if items, err := selection.ParseItems(r.Annotations); err == nil {
		if names, known := items.Bounds(); known {
			return mappedNames(names, r.Spec.NamespaceMapping), nil
		}
	}
	sure := Targets(&r.Spec)
	if !slices.Contains(sure, selection.All) {
		return sure, nil
	}
	loc, err := v.locationOf(ctx, r.Spec.BackupName)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrClusterUnread, err)
	}
	ctx, cancel := context.WithTimeout(ctx, listingTime)
	defer cancel()
	held, alone, known, err := v.backupNamespaces(ctx, r.Spec.BackupName, loc)
	if err == nil && alone {
		err = mark.SetWaits(r, mark.Waits{SharedDone: true})
	}
	if err != nil {
		return nil, fmt.Errorf("namespaces of backup %s: %w", r.Spec.BackupName, err)
	}
	if !known {
		return sure, nil
	}
	selected := selection.ExpandNamespaces(r.Spec.IncludedNamespaces, r.Spec.ExcludedNamespaces, held)
	if slices.Contains(selected, selection.All) {
		selected = held
	}
	return mappedNames(selected, r.Spec.NamespaceMapping), nil
}

func mappedNames(names []string, mapping map[string]string) []string {
	out := make([]string, len(names))
	for i, name := range names {
		if out[i] = name; mapping[name] != "" {
			out[i] = mapping[name]
		}
	}
	slices.Sort(out)
	return boundedNames(slices.Compact(out))
}

// locationOf returns the location of a backup.
func (v *Validator) locationOf(ctx context.Context, backup string) (*velerov1.BackupStorageLocation, error) {
	b := &velerov1.Backup{}
	if err := v.Reader.Get(ctx, client.ObjectKey{Namespace: v.Namespace, Name: backup}, b); err != nil {
		return nil, err
	}
	return v.Locations.Get(ctx, b.Spec.StorageLocation)
}

// backupNamespaces returns the namespaces of everything in a backup, and whether nothing else of it is
// cluster-scoped; not known where that is not cheap to read.
func (v *Validator) backupNamespaces(ctx context.Context, backup string, loc *velerov1.BackupStorageLocation) (names []string, alone, known bool, err error) {
	store, err := v.Locations.Open(ctx, loc)
	if err != nil {
		return nil, false, false, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	tar, err := store.Stat(ctx, layout.BackupTarball(backup))
	if err != nil {
		return nil, false, false, err
	}
	m, err := tarball.OpenManifest(ctx, store, backup)
	damaged := err == nil && m.Trailer().TarballSize != 0 && m.Trailer().TarballSize != tar.Size // or of another tarball
	switch {
	case damaged, errors.Is(err, objectstore.ErrNotFound):
		names, known, err = tarballNamespaces(ctx, store, backup, tar.Size)
		return names, false, known, err
	case err != nil:
		return nil, false, false, err
	}
	if names, err = m.Namespaces(ctx); err == nil {
		alone, err = hasNamespacesAlone(ctx, m)
	}
	return names, alone, err == nil, err
}

// maxSearched is in how many items cluster-scoped ones are looked for.
const maxSearched = 10_000

// hasNamespacesAlone reports that the only cluster-scoped items of a manifest are namespaces.
func hasNamespacesAlone(ctx context.Context, m *manifest.Reader) (bool, error) {
	if m.Len() > maxSearched {
		return false, nil
	}
	for item, err := range m.Items(ctx, manifest.Filter{Namespaces: []string{""}}) {
		if err != nil || item.Resource != "namespaces" {
			return false, err
		}
	}
	return true, nil
}

// tarballNamespaces reads a small tarball for the namespaces in it.
func tarballNamespaces(ctx context.Context, store objectstore.Reader, backup string, size int64) (_ []string, known bool, err error) {
	if size > tarballBytes {
		return nil, false, nil
	}
	body, err := store.Get(ctx, layout.BackupTarball(backup))
	if err != nil {
		return nil, false, err
	}
	defer func() { err = errors.Join(err, body.Close()) }()
	found := map[string]struct{}{}
	err = tarball.List(ctx, body, tarball.Limits{TotalBytes: unpackedSize}, tarball.Visitor{Entry: func(e tarball.Entry) error {
		if len(found) > maxFound {
			return errTooMany
		}
		switch {
		case e.Namespace != "":
			found[e.Namespace] = struct{}{}
		case e.Resource == "namespaces" && e.Group == "":
			found[e.Name] = struct{}{}
		}
		return nil
	}})
	if errors.Is(err, errTooMany) {
		return nil, false, nil
	}
	return slices.Sorted(maps.Keys(found)), err == nil, err
}

// errTooMany ends a listing of more namespaces than any cluster has.
var errTooMany = errors.New("too many namespaces")
