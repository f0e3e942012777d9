package ociimage

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

type blobDescriptor struct {
	Digest      string
	Size        int
	Annotations map[string]string
}

// TestBusyboxIsALayoutThatContainerdReads follows the image from its index to the program, and checks
// the digest and the size of each step.
func TestBusyboxIsALayoutThatContainerdReads(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "busybox")
	require.NoError(t, os.WriteFile(binary, []byte("the program"), 0o600))
	path := filepath.Join(t.TempDir(), "image.tar")
	require.NoError(t, Busybox(path, binary, "example.test/name:1"))

	data, err := os.ReadFile(path)
	require.NoError(t, err)
	files := tarEntries(t, data)
	require.JSONEq(t, `{"imageLayoutVersion":"1.0.0"}`, files["oci-layout"])
	var index struct{ Manifests []blobDescriptor }
	require.NoError(t, json.Unmarshal([]byte(files["index.json"]), &index))
	require.Len(t, index.Manifests, 1)
	require.Equal(t, "example.test/name:1", index.Manifests[0].Annotations["io.containerd.image.name"])

	var manifest struct {
		Config blobDescriptor
		Layers []blobDescriptor
	}
	require.NoError(t, json.Unmarshal(readBlob(t, files, index.Manifests[0]), &manifest))
	require.Len(t, manifest.Layers, 1)
	var config struct {
		RootFS struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	require.NoError(t, json.Unmarshal(readBlob(t, files, manifest.Config), &config))
	require.Equal(t, []string{manifest.Layers[0].Digest}, config.RootFS.DiffIDs, "the layer is not compressed")

	layer := tarEntries(t, readBlob(t, files, manifest.Layers[0]))
	require.Equal(t, "the program", layer["bin/busybox"])
	require.Equal(t, "-> busybox", layer["bin/sh"])
}

func TestBusyboxNamesAMissingProgram(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "busybox")
	path := filepath.Join(t.TempDir(), "image.tar")
	require.ErrorContains(t, Busybox(path, missing, "name"), missing)
	require.NoFileExists(t, path)
}

func readBlob(t *testing.T, files map[string]string, d blobDescriptor) []byte {
	t.Helper()
	require.Contains(t, d.Digest, "sha256:")
	data, found := files["blobs/sha256/"+d.Digest[len("sha256:"):]]
	require.True(t, found, d.Digest)
	sum := sha256.Sum256([]byte(data))
	require.Equal(t, d.Digest, "sha256:"+hex.EncodeToString(sum[:]))
	require.Len(t, data, d.Size)
	return []byte(data)
}

// tarEntries returns the content of each file of a tar, and the target of each symbolic link.
func tarEntries(t *testing.T, data []byte) map[string]string {
	t.Helper()
	found := map[string]string{}
	for archive := tar.NewReader(bytes.NewReader(data)); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		require.NoError(t, err)
		content, err := io.ReadAll(archive)
		require.NoError(t, err)
		if header.Typeflag == tar.TypeSymlink {
			content = []byte("-> " + header.Linkname)
		}
		found[header.Name] = string(content)
	}
}
