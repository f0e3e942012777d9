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

	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/kube/objmeta"
)

const (
	manifestFile = "manifest.json.gz"
	namespaces   = 200
	// bodyBytes is the size of each object in the manifest, memberBytes the size of its gzip member.
	bodyBytes   = 500
	memberBytes = 1 << 20
)

// writeManifest writes a manifest of ConfigMaps, of which some in a hundred belong to the first one
// of their namespace.
func writeManifest(path, dir string, objects, owned int) (err error) {
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
	each := objects / namespaces
	for i := range each * namespaces {
		ns, n := fmt.Sprintf("namespace-%04d", i/each), i%each
		e := &manifest.Entry{
			Version: "v1", Kind: "ConfigMap", Resource: "configmaps", Preferred: true, Size: bodyBytes,
			Meta: &objmeta.Meta{Namespace: ns, Name: fmt.Sprintf("an-object-with-a-name-of-sixty-characters-in-all-%012d", n), UID: uid(i)},
		}
		if n > 0 && n%100 < owned {
			e.Meta.Owners = []objmeta.Owner{{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: uid(i - n)}}
		}
		e.Path = "resources/configmaps/namespaces/" + ns + "/" + e.Meta.Name + ".json"
		e.SHA256[0], e.SHA256[1], e.SHA256[2] = byte(i), byte(i>>8), byte(i>>16)
		err := w.Add(manifest.Record{
			Key: manifest.AppendKey(nil, "v1/ConfigMap", ns, e.Meta.Name), UID: []byte(e.Meta.UID), Path: []byte(e.Path),
			Entry: manifest.AppendEntry(nil, e), Offset: int64(i / 1000 * memberBytes), Length: memberBytes,
		})
		if err != nil {
			return err
		}
	}
	return errors.Join(w.Close(manifest.Trailer{}), out.Flush())
}

func uid(i int) string { return fmt.Sprintf("%08x-0000-4000-8000-%012x", uint32(i)*2654435761, i) }

// backup reads the manifest, and makes the bodies up.
type backup struct {
	file   *os.File
	reader *manifest.Reader
}

func openBackup(ctx context.Context, path string) (*backup, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	b := &backup{file: file}
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
func (b *backup) ReadRange(_ context.Context, off, n int64) (io.ReadCloser, error) {
	return io.NopCloser(io.NewSectionReader(b.file, off, n)), nil
}

// Items implements plan.Source.
func (b *backup) Items(ctx context.Context) iter.Seq2[manifest.Item, error] {
	return b.reader.Items(ctx, manifest.Filter{})
}

// Read implements restore.Source.
func (b *backup) Read(_ context.Context, item manifest.Item) ([]byte, error) {
	return json.Marshal(map[string]any{
		"apiVersion": item.Version, "kind": item.Kind, "metadata": map[string]any{"namespace": item.Namespace, "name": item.Name},
		"data": map[string]any{"key": "value"},
	})
}
