package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/kube/objmeta"
)

const (
	manifestFile = "manifest.json.gz"
	namespaces   = 200
	group        = "example.com"
	namePrefix   = "an-object-with-a-name-of-sixty-characters-in-all-"
	// bodyBytes is the size of each object in the manifest, memberBytes the size of its gzip member.
	bodyBytes   = 500
	memberBytes = 1 << 20
)

// estate is what is restored: as many objects in each namespace, of which some in a hundred belong to
// the first one there.
type estate struct{ each, owned int }

func estateOf(objects, owned int) estate { return estate{objects / namespaces, owned} }

// isOwned reports that object n of a namespace has an owner.
func (e estate) isOwned(n int) bool { return n > 0 && n%100 < e.owned }

// ownerOf returns the owner reference of object n of a namespace.
func (e estate) ownerOf(namespace string) objmeta.Owner {
	return objmeta.Owner{APIVersion: group + "/v1", Kind: "Widget", Name: nameOf(0), UID: uidOf(namespace, 0)}
}

// writeManifest writes the manifest of an estate.
func (e estate) writeManifest(path, dir string) (err error) {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	out := bufio.NewWriterSize(file, 1<<20)
	w, err := manifest.NewWriter(out, manifest.Header{Backup: "b"}, dir)
	if err != nil {
		return err
	}
	for i := range namespaces * e.each { // in the order of a manifest: all first objects, then the others
		ns, n := i, 0
		if rest := i - namespaces; rest >= 0 {
			ns, n = rest/(e.each-1), 1+rest%(e.each-1)
		}
		if err := w.Add(e.record(fmt.Sprintf("namespace-%04d", ns), n, int64(i))); err != nil {
			return err
		}
	}
	return errors.Join(w.Close(manifest.Trailer{}), out.Flush())
}

// record is object n of a namespace in the manifest, of which it is number i.
func (e estate) record(namespace string, n int, i int64) manifest.Record {
	entry, kind, resource := e.entry(namespace, n), "v1/ConfigMap", "configmaps"
	if n == 0 {
		kind, resource = group+"/v1/Widget", "widgets."+group
	}
	entry.Path = "resources/" + resource + "/namespaces/" + namespace + "/" + entry.Meta.Name + ".json"
	entry.SHA256[0], entry.SHA256[1], entry.SHA256[2] = byte(i), byte(i>>8), byte(i>>16)
	return manifest.Record{
		Key: manifest.AppendKey(nil, kind, namespace, entry.Meta.Name), UID: []byte(entry.Meta.UID), Path: []byte(entry.Path),
		Entry: manifest.AppendEntry(nil, entry), Offset: i / 1000 * memberBytes, Length: memberBytes,
	}
}

// entry describes object n of a namespace: the first one is a custom resource, so that it is restored
// after what it owns.
func (e estate) entry(namespace string, n int) *manifest.Entry {
	entry := &manifest.Entry{
		Version: "v1", Kind: "ConfigMap", Resource: "configmaps", Preferred: true, Size: bodyBytes,
		Meta: &objmeta.Meta{Namespace: namespace, Name: nameOf(n), UID: uidOf(namespace, n)},
	}
	if n == 0 {
		entry.Group, entry.Kind, entry.Resource = group, "Widget", "widgets"
	}
	if e.isOwned(n) {
		entry.Meta.Owners = []objmeta.Owner{e.ownerOf(namespace)}
	}
	return entry
}

func nameOf(n int) string { return fmt.Sprintf("%s%012d", namePrefix, n) }

func uidOf(namespace string, n int) string { return fmt.Sprintf("00000000-%s-%012x", namespace, n) }

// syntheticBackup reads the manifest, and makes the bodies up.
type syntheticBackup struct {
	estate estate
	file   *os.File
	reader *manifest.Reader
}

func openBackup(ctx context.Context, path string, e estate) (*syntheticBackup, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	b := &syntheticBackup{estate: e, file: file}
	info, err := file.Stat()
	if err == nil {
		b.reader, err = manifest.Open(ctx, b, info.Size())
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return b, nil
}

// ReadRange implements manifest.RangeReader.
func (b *syntheticBackup) ReadRange(_ context.Context, off, n int64) (io.ReadCloser, error) {
	return io.NopCloser(io.NewSectionReader(b.file, off, n)), nil
}

// Items implements plan.Source.
func (b *syntheticBackup) Items(ctx context.Context) iter.Seq2[manifest.Item, error] {
	return b.reader.Items(ctx, manifest.Filter{})
}

// Read implements restore.Source.
func (b *syntheticBackup) Read(_ context.Context, item manifest.Item) ([]byte, error) {
	n, err := strconv.Atoi(strings.TrimPrefix(item.Name, namePrefix))
	if err != nil {
		return nil, err
	}
	meta := map[string]any{"namespace": item.Namespace, "name": item.Name}
	if b.estate.isOwned(n) {
		owner := b.estate.ownerOf(item.Namespace)
		meta["ownerReferences"] = []any{map[string]any{"apiVersion": owner.APIVersion, "kind": owner.Kind, "name": owner.Name, "uid": owner.UID, "controller": true}}
	}
	apiVersion := schema.GroupVersion{Group: item.Group, Version: item.Version}.String()
	return json.Marshal(map[string]any{"apiVersion": apiVersion, "kind": item.Kind, "metadata": meta, "data": map[string]any{"key": "value"}})
}
