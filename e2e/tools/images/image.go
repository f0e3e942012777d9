package main

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// user is the non-root UID and GID of the process: numbers, since images have no /etc/passwd.
const user = "65532:65532"

// rootsPath is the first file that Go's crypto/x509 reads root certificates from on Linux.
const rootsPath = "etc/ssl/certs/ca-certificates.crt"

// index is an image for several architectures in the making.
type index struct {
	tag     string
	name    string // with registry and tag
	content v1.ImageIndex
}

func newIndex(o *options, s spec) *index {
	return &index{tag: o.version, name: o.registry + "/" + s.name + ":" + o.version, content: mutate.IndexMediaType(empty.Index, types.OCIImageIndex)}
}

// addImage adds the image for one architecture and returns its compressed size.
func (x *index) addImage(o *options, s spec, arch string, roots []byte) (int64, error) {
	layer, err := newLayer(filepath.Join(o.binaries, arch), s, roots, o.base)
	if err != nil {
		return 0, err
	}
	config := &v1.ConfigFile{
		OS: "linux", Architecture: arch, Created: v1.Time{Time: o.created},
		RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{
			User: user, WorkingDir: "/", Entrypoint: []string{"/" + s.binary},
			Labels: map[string]string{
				"org.opencontainers.image.title": s.name, "org.opencontainers.image.version": o.version,
				"org.opencontainers.image.revision": o.revision, "org.opencontainers.image.licenses": "Apache-2.0",
			},
		},
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	if image, err = mutate.ConfigFile(image, config); err != nil {
		return 0, err
	}
	if image, err = mutate.Append(image, mutate.Addendum{Layer: layer, History: v1.History{Created: v1.Time{Time: o.created}, CreatedBy: "make images"}}); err != nil {
		return 0, err
	}
	x.content = mutate.AppendManifests(x.content, mutate.IndexAddendum{
		Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}},
	})
	return layer.Size()
}

// layerFile is a directory, whose name ends in a slash, or a file of a layer.
type layerFile struct {
	name string
	mode int64
	data []byte
}

// newLayer has the binaries and the authorities, all of it owned by root and written at the beginning
// of 1970.
func newLayer(dir string, s spec, roots []byte, base bool) (v1.Layer, error) {
	files := []layerFile{{"etc/", 0o755, nil}, {"etc/ssl/", 0o755, nil}, {"etc/ssl/certs/", 0o755, nil}, {rootsPath, 0o644, roots}}
	if base {
		files = append(files, layerFile{"tmp/", 0o1777, nil},
			layerFile{"etc/passwd", 0o644, []byte("root:x:0:0::/:\nnonroot:x:65532:65532::/tmp:\n")}, layerFile{"etc/group", 0o644, []byte("root:x:0:\nnonroot:x:65532:\n")})
	}
	for _, name := range append([]string{s.binary}, s.others...) {
		program, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		if parent := path.Dir(name); parent != "." {
			files = append(files, layerFile{parent + "/", 0o755, nil})
		}
		files = append(files, layerFile{name, 0o755, program})
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range files {
		header := &tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.data)), Typeflag: tar.TypeReg, Format: tar.FormatUSTAR}
		if f.data == nil {
			header.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	content := out.Bytes()
	return tarball.LayerFromOpener(
		func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil },
		tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(9), // gzip.BestCompression
	)
}

// write writes the image layout into one tar file and returns the digest of the index.
func (x *index) write(path string) (string, error) {
	digest, err := x.content.Digest()
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp(filepath.Dir(path), ".layout-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	out, err := layout.Write(dir, empty.Index)
	if err != nil {
		return "", err
	}
	// containerd names what it imports by the second; others read the first.
	names := map[string]string{"org.opencontainers.image.ref.name": x.tag, "io.containerd.image.name": x.name}
	if err := out.AppendIndex(x.content, layout.WithAnnotations(names)); err != nil {
		return "", err
	}
	return digest.String(), archive(dir, path)
}

// archive writes the files of dir into a tar file, in the order of their names, without times and
// owners.
func archive(dir, path string) (err error) {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() {
		if closing := file.Close(); err == nil {
			err = closing
		}
	}()
	w := tar.NewWriter(file)
	err = filepath.WalkDir(dir, func(at string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, at)
		if err != nil {
			return err
		}
		data, err := os.ReadFile(at)
		if err != nil {
			return err
		}
		if err := w.WriteHeader(&tar.Header{Name: filepath.ToSlash(name), Mode: 0o644, Size: int64(len(data)), Typeflag: tar.TypeReg, Format: tar.FormatUSTAR}); err != nil {
			return err
		}
		_, err = w.Write(data)
		return err
	})
	if err != nil {
		return fmt.Errorf("archive: %w", err)
	}
	return w.Close()
}
