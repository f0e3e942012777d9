package finalize

import (
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"

	"github.com/holdfast-io/holdfast/pkg/archive/part"
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
	g.zip = gzip.NewWriter(io.MultiWriter(file, g.sum, (*byteCounter)(&g.size)))
	return g, nil
}

type byteCounter int64

func (c *byteCounter) Write(p []byte) (int, error) {
	*c += byteCounter(len(p))
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
		removeFiles(part.File{Path: path})
		return part.File{}, err
	}
	return f, nil
}
