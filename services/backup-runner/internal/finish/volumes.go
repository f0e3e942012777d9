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

// volumes writes the array of volume entries as a stream.
type volumes struct {
	gzipFile  *gzipFile
	separator string
}

func newVolumes(path string) (*volumes, error) {
	g, err := createGzip(path)
	if err != nil {
		return nil, err
	}
	return &volumes{gzipFile: g, separator: "["}, nil
}

func (v *volumes) add(infos []volume.Info) error {
	for i := range infos {
		data, err := json.Marshal(&infos[i])
		if err != nil {
			return fmt.Errorf("encode volume info: %w", err)
		}
		if _, err := fmt.Fprintf(v.gzipFile.zip, "%s%s", v.separator, data); err != nil {
			return fmt.Errorf("write volume info: %w", err)
		}
		v.separator = ","
	}
	return nil
}

func (v *volumes) close() (part.File, error) {
	end := "]\n"
	if v.separator == "[" {
		end = "[]\n"
	}
	if _, err := io.WriteString(v.gzipFile.zip, end); err != nil {
		return part.File{}, fmt.Errorf("write volume info: %w", err)
	}
	return v.gzipFile.close()
}

// remove deletes the file; closing it again is harmless.
func (v *volumes) remove() {
	_ = v.gzipFile.file.Close()
	remove(part.File{Path: v.gzipFile.file.Name()})
}
