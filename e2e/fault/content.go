package fault

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/holdfast-io/holdfast/e2e/harness/product"
	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/joblog"
)

func hashOf(data []byte) string {
	h := sha256.Sum256(data)
	return hex.EncodeToString(h[:])
}

// readGzip reads a compressed object of the bucket.
func readGzip(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	zr, err := gzip.NewReader(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	data, err := io.ReadAll(zr)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return data, nil
}

// storedObjects hashes every entry of a tarball. A path may come twice if the object was stored again
// once operations had ended: the later one counts, and the path has a second name here.
func storedObjects(path string) (map[string]string, error) {
	data, err := readGzip(path)
	if err != nil {
		return nil, err
	}
	found := map[string]string{}
	reader := tar.NewReader(bytes.NewReader(data))
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if _, twice := found[header.Name]; twice {
			found["again "+header.Name] = ""
		}
		body, err := io.ReadAll(reader)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		found[header.Name] = hashOf(body)
	}
}

// listedObjects reads the items of a manifest: everything of them but where they lie in the tarball
// and of which cut they are.
func listedObjects(ctx context.Context, path string) (map[string]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	m, err := manifest.Open(ctx, file(path), info.Size())
	if err != nil {
		return nil, err
	}
	found := map[string]string{}
	for item, err := range m.Items(ctx, manifest.Filter{}) {
		if err != nil {
			return nil, err
		}
		if _, twice := found[item.Path]; twice {
			return nil, fmt.Errorf("%w: the manifest lists %s twice", ErrDiffers, item.Path)
		}
		text, err := json.Marshal(item)
		if err != nil {
			return nil, err
		}
		var fields map[string]any
		if err := json.Unmarshal(text, &fields); err != nil {
			return nil, err
		}
		for _, position := range []string{"offset", "length", "cut"} {
			delete(fields, position)
		}
		if text, err = json.Marshal(fields); err != nil {
			return nil, err
		}
		found[item.Path] = string(text)
	}
	return found, nil
}

// file reads ranges of a file.
type file string

// ReadRange implements manifest.RangeReader.
func (f file) ReadRange(_ context.Context, offset, n int64) (io.ReadCloser, error) {
	opened, err := os.Open(string(f))
	if err != nil {
		return nil, err
	}
	return struct {
		io.Reader
		io.Closer
	}{io.NewSectionReader(opened, offset, n), opened}, nil
}

// listKeys lists what lies below a prefix of the bucket, whatever it is: also what a dead writer left
// beside the objects.
func (d *bucketDir) listKeys(prefix string) (map[string]string, error) {
	files, err := product.Files(filepath.Join(d.path, prefix))
	found := map[string]string{}
	for _, name := range files {
		found[name] = "there"
	}
	return found, err
}

// readTexts reads compressed documents of a directory of the bucket.
func (d *bucketDir) readTexts(dir string, names []string, scrub *strings.Replacer) (map[string]string, error) {
	found := map[string]string{}
	for _, name := range names {
		data, err := readGzip(filepath.Join(d.path, dir, name))
		if err != nil {
			return nil, err
		}
		if strings.HasSuffix(name, "-results.gz") {
			if data, err = sortMessages(data); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
		if strings.HasSuffix(name, "-volumeinfo.json.gz") || strings.HasSuffix(name, "-itemoperations.json.gz") {
			data = moments.ReplaceAll(data, []byte("(time)"))
		}
		found[scrub.Replace(name)] = raced.ReplaceAllString(scrub.Replace(string(data)), "$1(there)")
	}
	return found, nil
}

// raced matches the actions, in the resource list of a restore, on objects that controllers make in
// every new namespace: they depend on which is first.
var raced = regexp.MustCompile(`(/kube-root-ca\.crt|/default)\([a-z]+\)`)

// moments matches when something was done.
var moments = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)

// sortMessages puts the messages of a results document into an order of their own: theirs is that in
// which parallel work came to them.
func sortMessages(data []byte) ([]byte, error) {
	var results map[string]joblog.Result
	if err := json.Unmarshal(data, &results); err != nil {
		return nil, err
	}
	for _, result := range results {
		slices.Sort(result.Velero)
		slices.Sort(result.Cluster)
		for _, messages := range result.Namespaces {
			slices.Sort(messages)
		}
	}
	return json.Marshal(results)
}
