package assembly

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/archive/part"
	"github.com/holdfast-io/holdfast/pkg/extsort"
	"github.com/holdfast-io/holdfast/pkg/layout"
)

// Getter opens objects by key, as an object store does.
type Getter interface {
	Get(ctx context.Context, key string) (io.ReadCloser, error)
}

// merger is the state of one Merge.
type merger struct {
	store     Getter
	plan      Plan
	dir       string
	notes     *logNotes
	manifest  *manifest.Writer
	out       *outputFile // of the manifest
	resources *resourceList
	bare      bool // no tarball around the parts
	trailer   manifest.Trailer
	base      int64 // size of the tarball once all parts are counted
	merged    Merged
}

// Merge reads the sidecars and writes manifest, resource list, results and log into dir, in bounded
// memory. Where two parts hold the same object the later one counts, as when the tarball is
// unpacked. The caller removes the files.
func Merge(ctx context.Context, store Getter, plan Plan, dir string) (*Merged, error) {
	m := &merger{store: store, plan: plan, dir: dir, notes: newNotes(dir, &plan)}
	defer m.notes.close()
	if err := m.mergeParts(ctx); err != nil {
		return nil, errors.Join(err, m.removeOutputs())
	}
	return &m.merged, nil
}

// Index writes only the manifest of parts that are not framed into a tarball: offsets count from
// the first part. A size of the tarball in t counts instead of that of the parts.
func Index(ctx context.Context, store Getter, parts []PartRef, h manifest.Header, t manifest.Trailer, dir string) (part.File, error) {
	plan := Plan{Parts: parts, Header: h}
	m := &merger{store: store, plan: plan, dir: dir, notes: newNotes(dir, &plan), bare: true, trailer: t}
	defer m.notes.close()
	err := m.mergeParts(ctx)
	f := m.merged.Manifest
	if err == nil {
		m.merged.Manifest = part.File{} // the others go
	}
	return f, errors.Join(err, m.removeOutputs())
}

func (m *merger) mergeParts(ctx context.Context) (err error) {
	sidecars := fetchAhead(ctx, m.store, m.plan.Parts, m.dir)
	defer sidecars.close()
	entries, err := m.openSidecars(ctx, sidecars)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, entries.Close()) }()
	if err := m.openOutputs(); err != nil {
		return err
	}
	if err := m.mergeEntries(entries); err != nil {
		return err
	}
	if err := m.finishItems(); err != nil {
		return err
	}
	if m.plan.Stored != nil {
		more, err := m.plan.Ended()
		if err != nil {
			return err
		}
		m.plan.Notes = slices.Concat(m.plan.Notes, more)
	}
	for i := range m.plan.Notes {
		if err := m.notes.addEntry(&m.plan.Notes[i], ^uint32(0)); err != nil {
			return err
		}
	}
	return m.notes.writeFiles(ctx, &m.merged)
}

// fanIn is how many sidecars are merged at once: each takes about 90 KiB. More, of some 60,000
// objects, are merged in two levels.
const fanIn = 64

// openSidecars merges the sidecars into one stream.
func (m *merger) openSidecars(ctx context.Context, sidecars *sidecarPrefetch) (extsort.Stream, error) {
	preamble, trailer, err := m.frameSizes()
	if err != nil {
		return nil, err
	}
	m.base = preamble
	opens := make([]extsort.Open, 0, len(m.plan.Parts))
	for i, p := range m.plan.Parts {
		base := m.base
		m.base += p.Size
		opens = append(opens, func() (extsort.Stream, error) {
			file, err := sidecars.takeSidecar(i)
			if err != nil {
				return nil, err
			}
			s, err := openSidecar(file, p)
			if err != nil {
				return nil, err
			}
			s.base, s.order, s.notes = base, uint32(i), m.notes //nolint:gosec // a backup has far fewer parts
			return s, nil
		})
	}
	m.base += trailer
	return extsort.Merge(ctx, extsort.Config{Dir: m.dir, FanIn: fanIn}, opens)
}

// frameSizes returns how long the tarball's ends are.
func (m *merger) frameSizes() (preamble, trailer int64, err error) {
	if m.bare {
		return 0, 0, nil
	}
	front, err := part.Preamble(m.plan.ModTime)
	if err != nil {
		return 0, 0, err
	}
	back, err := part.Trailer()
	return int64(len(front)), int64(len(back)), err
}

func (m *merger) openOutputs() (err error) {
	if m.out, err = newOutput(m.dir, "manifest-*", false); err != nil {
		return err
	}
	h := m.plan.Header
	h.Backup, h.UID = cmp.Or(h.Backup, m.plan.Backup), cmp.Or(h.UID, m.plan.UID)
	if h.StartTime.IsZero() {
		h.StartTime = m.plan.ModTime
	}
	if m.manifest, err = manifest.NewWriter(m.out, h, m.dir); err != nil {
		return err
	}
	m.resources, err = newResourceList(m.dir)
	return err
}

// mergeEntries goes through the entries and keeps one of each object.
func (m *merger) mergeEntries(entries extsort.Stream) error {
	var lastKey, lastValue []byte
	for {
		key, value, err := entries.Next()
		ended := errors.Is(err, io.EOF) && !errors.Is(err, part.ErrCorrupt)
		if err != nil && !ended {
			return fmt.Errorf("merge sidecars: %w", err)
		}
		if len(lastKey) > 0 && (ended || !bytes.Equal(key, lastKey)) {
			if err := m.addEntry(lastKey, lastValue); err != nil {
				return err
			}
			lastKey = lastKey[:0]
		}
		if ended {
			return nil
		}
		if len(lastKey) > 0 && !isStoredObject(value) && isStoredObject(lastValue) {
			continue // failing later does not undo what was stored
		}
		lastKey, lastValue = append(lastKey[:0], key...), append(lastValue[:0], value...)
	}
}

// isStoredObject reports whether the value, offset first, is of a stored object.
func isStoredObject(value []byte) bool {
	_, n := binary.Uvarint(value)
	return n > 0 && len(value) > n+1
}

// liveMember is how the entry of a live item says so; no text in JSON holds it.
var liveMember = []byte(`"live":true`)

func (m *merger) addEntry(key, value []byte) error {
	base, n := binary.Uvarint(value)
	if n <= 0 {
		return fmt.Errorf("merge sidecars: %w: %q", part.ErrCorrupt, key)
	}
	e, err := part.ParseEntry(key, value[n:])
	if err != nil {
		return fmt.Errorf("merge sidecars: %w: %q", err, key)
	}
	if err := m.resources.addKey(key); err != nil {
		return err
	}
	if !e.Stored {
		m.merged.Failed++
		return nil
	}
	m.merged.Items++
	if m.plan.Stored != nil {
		named, ok := manifest.ParseKey(key)
		if !ok {
			return fmt.Errorf("merge sidecars: %w: %q", part.ErrCorrupt, key)
		}
		if err := m.plan.Stored(named, bytes.Contains(e.JSON, liveMember)); err != nil {
			return err
		}
	}
	return m.manifest.Add(manifest.Record{
		Key: key, UID: e.UID, Path: e.Path, Entry: e.JSON, Offset: int64(base) + e.Offset, Length: e.Length, //nolint:gosec // a file's length
	})
}

func (m *merger) finishItems() (err error) {
	m.trailer.Cuts, m.trailer.TarballSize = m.plan.Cuts, cmp.Or(m.trailer.TarballSize, m.base)
	if err := m.manifest.Close(m.trailer); err != nil {
		return err
	}
	m.manifest = nil
	if m.merged.Manifest, err = m.out.finishOutput(); err != nil {
		return err
	}
	m.out = nil
	m.merged.ResourceList, err = m.resources.finishList()
	m.resources = nil
	return err
}

// removeOutputs removes what a failed merge wrote.
func (m *merger) removeOutputs() error {
	var errs []error
	if m.manifest != nil {
		m.manifest.Abort()
	}
	if m.out != nil {
		errs = append(errs, m.out.discardOutput())
	}
	if m.resources != nil {
		errs = append(errs, m.resources.out.discardOutput())
	}
	for _, f := range []part.File{m.merged.Manifest, m.merged.ResourceList, m.merged.Log, m.merged.Results} {
		if f.Path != "" {
			errs = append(errs, os.Remove(f.Path))
		}
	}
	return errors.Join(errs...)
}

// Files returns the merged files by the keys they are published under.
func (m *Merged) Files(backup string) map[string]part.File {
	return map[string]part.File{
		layout.BackupManifest(backup): m.Manifest, layout.BackupResourceList(backup): m.ResourceList,
		layout.BackupResults(backup): m.Results, layout.BackupLog(backup): m.Log,
	}
}
