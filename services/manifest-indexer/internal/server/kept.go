package server

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-io/holdfast/pkg/archive/part"
)

// keptManifests are rebuilt manifests in the work dir, those used last at the end. The oldest go where
// all would be larger than the limit. It is not safe for concurrent use.
type keptManifests struct {
	limit int64 // 0 means maxKeptBytes
	size  int64
	files []keptManifest
}

type keptManifest struct {
	backup types.UID
	file   part.File
}

// addFile takes a file over.
func (k *keptManifests) addFile(backup types.UID, file part.File) {
	k.removeFile(backup)
	k.files = append(k.files, keptManifest{backup, file})
	k.size += file.Size
	limit := k.limit
	if limit == 0 {
		limit = maxKeptBytes
	}
	for k.size > limit && len(k.files) > 1 {
		k.removeFile(k.files[0].backup)
	}
}

func (k *keptManifests) indexOf(backup types.UID) int {
	return slices.IndexFunc(k.files, func(f keptManifest) bool { return f.backup == backup })
}

func (k *keptManifests) removeFile(backup types.UID) {
	i := k.indexOf(backup)
	if i < 0 {
		return
	}
	k.size -= k.files[i].file.Size
	_ = os.Remove(k.files[i].file.Path) // the work dir goes with the process
	k.files = slices.Delete(k.files, i, i+1)
}

// openFile returns nil for a backup without a file. The file can be read to its end whatever is removed
// meanwhile.
func (k *keptManifests) openFile(backup types.UID) (*os.File, error) {
	i := k.indexOf(backup)
	if i < 0 {
		return nil, nil //nolint:nilnil // nothing is kept
	}
	file, err := os.Open(k.files[i].file.Path)
	if errors.Is(err, fs.ErrNotExist) {
		k.removeFile(backup)
		return nil, nil //nolint:nilnil // somebody emptied the work dir
	}
	used := k.files[i]
	k.files = append(slices.Delete(k.files, i, i+1), used)
	return file, err
}

// fileRanges reads ranges of an open file.
type fileRanges struct{ file io.ReaderAt }

// ReadRange implements manifest.RangeReader.
func (f fileRanges) ReadRange(_ context.Context, off, n int64) (io.ReadCloser, error) {
	return io.NopCloser(io.NewSectionReader(f.file, off, n)), nil
}
