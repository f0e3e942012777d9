package part

import (
	"bytes"
	"fmt"
	"time"

	"github.com/klauspost/compress/gzip"

	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
)

// Preamble returns the gzip member a tarball begins with: the entry metadata/version.
func Preamble(modTime time.Time) ([]byte, error) {
	content := []byte(manifest.FormatVersion + "\n")
	b := appendHeader(nil, []byte("metadata/version"), int64(len(content)), modTime)
	b = append(b, content...)
	return gzipMember(append(b, zeros[:paddingSize(int64(len(content)))]...))
}

// Trailer returns the gzip member a tarball ends with: tar's end of archive.
func Trailer() ([]byte, error) { return gzipMember(make([]byte, 2*blockBytes)) }

func gzipMember(content []byte) ([]byte, error) {
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	if _, err := zip.Write(content); err != nil {
		return nil, fmt.Errorf("frame: %w", err)
	}
	if err := zip.Close(); err != nil {
		return nil, fmt.Errorf("frame: %w", err)
	}
	return out.Bytes(), nil
}
