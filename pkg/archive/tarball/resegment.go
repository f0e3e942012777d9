package tarball

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/archive/assembly"
	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/archive/part"
	"github.com/holdfast-io/holdfast/pkg/archive/reference"
	"github.com/holdfast-io/holdfast/pkg/json/jsonlist"
	"github.com/holdfast-io/holdfast/pkg/json/rawjson"
	"github.com/holdfast-io/holdfast/pkg/kube/objmeta"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// FromTarball reads a tarball of any server once, and re-segments it into files under dir: gzip
// members and a manifest like those of our own backups. Objects are those of the un-versioned
// paths, which is what Velero restores. They are a work copy; Close removes it.
func FromTarball(ctx context.Context, store objectstore.Reader, backup, dir string, l Limits) (_ Source, err error) {
	work, err := os.MkdirTemp(dir, "tarball-*")
	if err != nil {
		return nil, fmt.Errorf("re-segment tarball: %w", err)
	}
	release := func() error { return os.RemoveAll(work) }
	defer func() {
		if err != nil {
			err = errors.Join(err, release())
		}
	}()
	rc, err := store.Get(ctx, layout.BackupTarball(backup))
	if err != nil {
		return nil, fmt.Errorf("tarball of backup %s: %w", backup, err)
	}
	defer func() { _ = rc.Close() }()
	l = l.withDefaults()
	var found problems
	sealed, err := resegmentTarball(ctx, rc, work, l, &found)
	if err != nil {
		return nil, fmt.Errorf("tarball of backup %s: %w", backup, err)
	}
	src, err := indexPart(ctx, work, manifest.Header{Backup: backup, Foreign: true}, sealed, l)
	if err != nil {
		return nil, fmt.Errorf("tarball of backup %s: %w", backup, err)
	}
	src.problems, src.release = found, release
	return src, nil
}

// FromPart reads objects out of a part whose files are in dir. Close removes dir.
func FromPart(ctx context.Context, dir string, h manifest.Header, sealed *part.Sealed) (Source, error) {
	src, err := indexPart(ctx, dir, h, sealed, Limits{})
	if err != nil {
		return nil, fmt.Errorf("read a part: %w", err)
	}
	src.release = func() error { return os.RemoveAll(dir) }
	return src, nil
}

// resegmentTarball copies the objects of the tarball into one part.
func resegmentTarball(ctx context.Context, r io.Reader, dir string, l Limits, found *problems) (*part.Sealed, error) {
	w, err := part.NewWriter(part.Config{Dir: dir, Single: true})
	if err != nil {
		return nil, err
	}
	defer w.Discard()
	c := copier{w: w, found: found, references: l.References}
	if err := List(ctx, r, l, Visitor{Entry: c.copyEntry, Problem: found.addProblem}); err != nil {
		return nil, err
	}
	return w.Seal()
}

// copier puts objects into a part.
type copier struct {
	w     *part.Writer
	all   bool // versions that are not preferred too
	found *problems
	// references is nil for the built-in rules.
	references *reference.Set
	body       []byte
	meta       objmeta.Meta
}

func (c *copier) copyEntry(e Entry) error {
	if e.Preferred || e.Version != "" && !c.all {
		return nil
	}
	if int64(cap(c.body)) < e.Size {
		c.body = make([]byte, e.Size)
	}
	c.body = c.body[:e.Size]
	if _, err := io.ReadFull(e.Body, c.body); err != nil {
		return err
	}
	item, err := c.partItem(&e)
	if err != nil {
		c.found.addProblem(Problem{Path: e.TarName, Err: fmt.Errorf("%w: %s: %w", ErrCorrupt, e.TarName, err)})
		return nil
	}
	switch err := c.w.Add(item); {
	case errors.Is(err, part.ErrInvalidItem):
		c.found.addProblem(Problem{Path: e.TarName, Err: fmt.Errorf("%w: %s: %w", ErrCorrupt, e.TarName, err)})
	case err != nil:
		return &visitError{err}
	}
	return nil
}

// partItem makes a part's item of a body. The path decides over namespace and name, as it does in
// Velero.
func (c *copier) partItem(e *Entry) (part.Item, error) {
	object, err := jsonlist.ParseObject(c.body)
	if err != nil {
		return part.Item{}, err
	}
	if !object.HasTypeMeta {
		return part.Item{}, errors.New("apiVersion or kind is missing")
	}
	if err := objmeta.Decode(object.Metadata, &c.meta); err != nil {
		return part.Item{}, err
	}
	if c.meta.Name != e.Name || c.meta.Namespace != e.Namespace {
		return part.Item{}, fmt.Errorf("metadata names %s/%s", c.meta.Namespace, c.meta.Name)
	}
	gv, err := schema.ParseGroupVersion(rawjson.String(rawjson.Lookup(object.Raw, "apiVersion")))
	if err != nil {
		return part.Item{}, fmt.Errorf("apiVersion: %w", err)
	}
	if gv.Group != e.Group {
		return part.Item{}, fmt.Errorf("apiVersion is of group %q", gv.Group)
	}
	if e.Version != "" && gv.Version != e.Version {
		return part.Item{}, fmt.Errorf("apiVersion is of version %q", gv.Version)
	}
	gvk := gv.WithKind(rawjson.String(rawjson.Lookup(object.Raw, "kind")))
	finder := reference.For(gvk.GroupKind())
	if c.references != nil {
		finder = c.references.For(gvk, "")
	}
	found, _ := finder.Find(e.Namespace, object.Raw) // a manifest names at most reference.Max of them
	return part.Item{
		GVK: gvk, Resource: e.Resource, Preferred: e.Version == "", Stored: c.body,
		Meta: &c.meta, Raw: object.Raw, Envelope: object.Envelope, HasTypeMeta: true, Spaced: object.Spaced, References: found,
	}, nil
}

// indexPart makes a manifest of the part and opens both.
func indexPart(ctx context.Context, dir string, h manifest.Header, sealed *part.Sealed, l Limits) (*source, error) {
	files := localFiles{dir}
	ref := assembly.PartRef{Size: sealed.Data.Size, SidecarKey: filepath.Base(sealed.Sidecar.Path)}
	merged, err := assembly.Index(ctx, files, []assembly.PartRef{ref}, h, manifest.Trailer{}, dir)
	if err != nil {
		return nil, err
	}
	m, err := manifest.Open(ctx, localFile(merged.Path), merged.Size)
	if err != nil {
		return nil, err
	}
	return newSource(m, localFile(sealed.Data.Path), l), nil
}
