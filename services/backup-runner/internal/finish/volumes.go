package finish

import (
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"

	"github.com/holdfast-io/holdfast/pkg/extsort"
	"github.com/holdfast-io/holdfast/pkg/nativesnapshot"
	"github.com/holdfast-io/holdfast/pkg/part"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/volume"
)

// gzipFile writes a gzip file and sums what it writes.
type gzipFile struct {
	file *os.File
	zip  *gzip.Writer
	sum  hash.Hash
	size int64
}

func createGzip(path string) (*gzipFile, error) {
	file, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("create a work file: %w", err)
	}
	g := &gzipFile{file: file, sum: sha256.New()}
	g.zip = gzip.NewWriter(io.MultiWriter(file, g.sum, (*counter)(&g.size)))
	return g, nil
}

type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

func (g *gzipFile) close() (part.File, error) {
	if err := errors.Join(g.zip.Close(), g.file.Close()); err != nil {
		return part.File{}, fmt.Errorf("finish a work file: %w", err)
	}
	return part.File{Path: g.file.Name(), Size: g.size, SHA256: hex.EncodeToString(g.sum.Sum(nil))}, nil
}

// jsonFile writes one small document.
func jsonFile(path string, document []byte) (part.File, error) {
	g, err := createGzip(path)
	if err != nil {
		return part.File{}, err
	}
	_, err = g.zip.Write(document)
	f, closeErr := g.close()
	if err := errors.Join(err, closeErr); err != nil {
		remove(part.File{Path: path})
		return part.File{}, err
	}
	return f, nil
}

// volumes writes an array of entries about volumes, in an order of its own: they come as parallel work came to them.
type volumes struct {
	path   string
	empty  string // the file without entries
	sorter *extsort.Sorter
}

func newVolumes(path, empty string) *volumes {
	return &volumes{path: path, empty: empty, sorter: extsort.New(extsort.Config{Dir: filepath.Dir(path)})}
}

// add adds what became of volumes, in the order of claims and volumes.
func (v *volumes) add(infos []volume.Info) error {
	for i := range infos {
		if infos[i].Pending { // another entry says what became of it
			continue
		}
		if err := v.entry(infos[i].PVCNamespace+"\x00"+infos[i].PVCName+"\x00"+infos[i].PVName, &infos[i]); err != nil {
			return err
		}
	}
	return nil
}

// addSnapshots adds snapshots, in the order of their volumes, and returns how many of them there are.
func (v *volumes) addSnapshots(snapshots []nativesnapshot.Snapshot) (completed int, err error) {
	for i := range snapshots {
		if err := v.entry(snapshots[i].Spec.PersistentVolumeName, &snapshots[i]); err != nil {
			return completed, err
		}
		if snapshots[i].Status.Phase == nativesnapshot.PhaseCompleted {
			completed++
		}
	}
	return completed, nil
}

func (v *volumes) entry(key string, entry any) error {
	data, err := json.Marshal(entry)
	if err != nil {
		return fmt.Errorf("encode volume info: %w", err)
	}
	if err := v.sorter.Add([]byte(key), data); err != nil {
		return fmt.Errorf("sort volume info: %w", err)
	}
	return nil
}

// file writes the entries.
func (v *volumes) file() (part.File, error) {
	g, err := createGzip(v.path)
	if err != nil {
		return part.File{}, err
	}
	err = v.write(g.zip)
	f, closeErr := g.close()
	if err := errors.Join(err, closeErr); err != nil {
		remove(part.File{Path: v.path})
		return part.File{}, fmt.Errorf("write volume info: %w", err)
	}
	return f, nil
}

func (v *volumes) write(w io.Writer) (err error) {
	sorted, err := v.sorter.Sort()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sorted.Close()) }()
	for separator := "["; ; separator = "," {
		_, data, err := sorted.Next()
		switch {
		case errors.Is(err, io.EOF) && separator == "[":
			_, err = io.WriteString(w, v.empty)
			return err
		case errors.Is(err, io.EOF):
			_, err = io.WriteString(w, "]\n")
			return err
		case err != nil:
			return err
		}
		if _, err := fmt.Fprintf(w, "%s%s", separator, data); err != nil {
			return err
		}
	}
}

// close releases what the entries took; what was not written is lost.
func (v *volumes) close() { _ = v.sorter.Close() }
