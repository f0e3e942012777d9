package part

import (
	"fmt"
	"strings"

	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/json/jsonlist"
	"github.com/holdfast-io/holdfast/pkg/json/rawjson"
)

// Add stores an object: the tar entries of Velero's layout (the un-versioned path and
// <version>-preferredversion, or <version> alone for a version that is not preferred) and its entry
// in the sidecar. The body stored is it.Raw as compact JSON, with apiVersion and kind. An error
// that wraps ErrInvalidItem leaves the part as it was.
func (w *Writer) Add(it Item) error {
	if w.err != nil {
		return w.err
	}
	if err := it.checkItem(); err != nil {
		return err
	}
	pieces, size, err := w.storedBody(&it)
	if err != nil {
		return err
	}
	if w.cfg.IndexOnly {
		w.pieces = append(w.pieces[:0], it.Stored)
		pieces, size = w.pieces, int64(len(it.Stored))
	}
	entry := &w.entry
	*entry = manifest.Entry{
		Group: it.GVK.Group, Version: it.GVK.Version, Kind: it.GVK.Kind, Resource: it.Resource, Meta: it.Meta,
		Actions: it.Actions, Cut: it.Cut, Live: it.Live, Extra: it.Extra, Preferred: it.Preferred, Size: size, References: it.References,
	}
	w.sum.Reset()
	for _, p := range pieces {
		_, _ = w.sum.Write(p) // a hash never fails
	}
	w.sum.Sum(entry.SHA256[:0])
	entry.ContentHash = w.hashContent(&it)
	if entry.Path, err = w.storeItem(&it, pieces, size); err != nil {
		return w.keepError(err)
	}
	w.record = appendStored(w.record[:0], len(w.data.members), entry)
	if err := w.keepRecord(manifest.KindName(it.GVK.Group, it.GVK.Version, it.GVK.Kind), it.Meta.Namespace, it.Meta.Name, w.record); err != nil {
		return w.keepError(err)
	}
	w.counts.Items++
	if w.data.input >= int64(w.cfg.MemberBytes) {
		if err := w.data.closeMember(); err != nil {
			return w.keepError(err)
		}
	}
	return nil
}

// Fail records an object that entered processing and could not be stored: it appears in the
// resource list alone, and only if no part stores it. Raw is not used.
func (w *Writer) Fail(it Item) error {
	if w.err != nil {
		return w.err
	}
	it.Raw = []byte("{}")
	if err := it.checkItem(); err != nil {
		return err
	}
	if err := w.keepRecord(manifest.KindName(it.GVK.Group, it.GVK.Version, it.GVK.Kind), it.Meta.Namespace, it.Meta.Name, []byte{recordFailed}); err != nil {
		return w.keepError(err)
	}
	w.counts.Failed++
	return nil
}

// checkItem finds what would make an unreadable tarball.
func (it *Item) checkItem() error {
	if it.Meta == nil {
		return fmt.Errorf("%w: no metadata", ErrInvalidItem)
	}
	for _, f := range [...]struct {
		name, value string
		optional    bool
	}{
		{"version", it.GVK.Version, false}, {"kind", it.GVK.Kind, false}, {"resource", it.Resource, false}, {"metadata.name", it.Meta.Name, false},
		{"group", it.GVK.Group, true}, {"metadata.namespace", it.Meta.Namespace, true},
	} {
		if f.value == "" && !f.optional || f.value == "." || f.value == ".." || strings.ContainsAny(f.value, "/\x00") {
			return fmt.Errorf("%w: %s %q cannot be part of a path", ErrInvalidItem, f.name, f.value)
		}
	}
	if len(it.Raw) < 2 || it.Raw[0] != '{' {
		return fmt.Errorf("%w: %s/%s is no JSON object", ErrInvalidItem, it.Meta.Namespace, it.Meta.Name)
	}
	if len(it.Raw) > maxEntrySize {
		return fmt.Errorf("%w: %s/%s is larger than 8 GiB", ErrInvalidItem, it.Meta.Namespace, it.Meta.Name)
	}
	return nil
}

// hashContent hashes what a restore compares of an object. storedBody has run.
func (w *Writer) hashContent(it *Item) []byte {
	c := manifest.Content{Group: it.GVK.Group, Kind: it.GVK.Kind, Body: it.Raw, Meta: it.Meta, Envelope: it.Envelope}
	if it.Spaced {
		c.Body, c.Envelope = w.compact, jsonlist.Envelope{}
	}
	return w.content.HashContent(&c)
}

// storedBody returns the object as it is stored, in pieces, without copying it.
func (w *Writer) storedBody(it *Item) (pieces [][]byte, size int64, err error) {
	raw := it.Raw
	if it.Spaced {
		if cap(w.compact) > keptBytes {
			w.compact = nil
		}
		if w.compact, err = rawjson.AppendCompact(w.compact[:0], raw); err != nil {
			return nil, 0, fmt.Errorf("%w: %s/%s: %w", ErrInvalidItem, it.Meta.Namespace, it.Meta.Name, err)
		}
		raw = w.compact
	}
	if it.HasTypeMeta {
		w.pieces = append(w.pieces[:0], raw)
		return w.pieces, int64(len(raw)), nil
	}
	w.front = append(w.front[:0], `{"apiVersion":`...)
	w.front = rawjson.AppendQuoted(w.front, it.GVK.GroupVersion().String())
	w.front = append(w.front, `,"kind":`...)
	w.front = rawjson.AppendQuoted(w.front, it.GVK.Kind)
	if len(raw) > 2 {
		w.front = append(w.front, ',')
	}
	w.pieces = append(w.pieces[:0], w.front, raw[1:])
	return w.pieces, int64(len(w.front) + len(raw) - 1), nil
}

// storeItem writes the tar entries and returns the path the manifest names.
func (w *Writer) storeItem(it *Item, pieces [][]byte, size int64) (string, error) {
	if w.cfg.IndexOnly {
		version := ""
		if !it.Preferred {
			version = it.GVK.Version
		}
		w.path = appendPath(w.path[:0], it, version)
		return string(w.path), nil
	}
	if err := w.data.openMember(); err != nil {
		return "", err
	}
	if !it.Preferred {
		w.path = appendPath(w.path[:0], it, it.GVK.Version)
		return string(w.path), w.writeEntry(pieces, size)
	}
	w.path = appendPath(w.path[:0], it, "")
	path := string(w.path)
	if w.cfg.Single {
		return path, w.writeEntry(pieces, size)
	}
	if size > apartBytes {
		return path, w.twiceApart(it, pieces, size)
	}
	if err := w.writeEntry(pieces, size); err != nil {
		return "", err
	}
	w.path = appendPath(w.path[:0], it, it.GVK.Version+"-preferredversion")
	return path, w.writeEntry(pieces, size)
}

// writeEntry writes a tar entry for w.path.
func (w *Writer) writeEntry(pieces [][]byte, size int64) error {
	w.block = appendHeader(w.block[:0], w.path, size, w.cfg.ModTime)
	if size <= apartBytes { // one write of a copy is cheaper than several
		for _, p := range pieces {
			w.block = append(w.block, p...)
		}
		w.block = append(w.block, zeros[:paddingSize(size)]...)
		return w.data.write(w.block)
	}
	if err := w.data.write(w.block); err != nil {
		return err
	}
	for _, p := range pieces {
		if err := w.data.write(p); err != nil {
			return err
		}
	}
	return w.data.write(zeros[:paddingSize(size)])
}

// twiceApart writes both entries of a large object, compressing its body once.
func (w *Writer) twiceApart(it *Item, pieces [][]byte, size int64) error {
	pieces = append(pieces, zeros[:paddingSize(size)])
	if err := w.data.compressApart(pieces); err != nil {
		return err
	}
	for _, version := range [...]string{"", it.GVK.Version + "-preferredversion"} {
		w.path = appendPath(w.path[:0], it, version)
		w.block = appendHeader(w.block[:0], w.path, size, w.cfg.ModTime)
		if err := w.data.write(w.block); err != nil {
			return err
		}
		if err := w.data.writeApart(pieces); err != nil {
			return err
		}
	}
	return nil
}

// appendPath appends the path of Velero's format 1.1.0.
func appendPath(dst []byte, it *Item, version string) []byte {
	dst = append(append(dst, "resources/"...), it.Resource...)
	if it.GVK.Group != "" {
		dst = append(append(dst, '.'), it.GVK.Group...)
	}
	if version != "" {
		dst = append(append(dst, '/'), version...)
	}
	if it.Meta.Namespace == "" {
		dst = append(dst, "/cluster/"...)
	} else {
		dst = append(append(append(dst, "/namespaces/"...), it.Meta.Namespace...), '/')
	}
	return append(append(dst, it.Meta.Name...), ".json"...)
}
