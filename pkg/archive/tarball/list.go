package tarball

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"
)

// Entry is one object of a tarball while it is read.
type Entry struct {
	Path
	// TarName is the name of the tar entry.
	TarName string
	// Size of the body in bytes.
	Size int64
	// Body is valid during the call.
	Body io.Reader
}

// Visitor is called with what a tarball holds.
type Visitor struct {
	// Entry is called for every object in order of the tarball, both copies of each included. An
	// error ends the list.
	Entry func(Entry) error
	// Problem is called for every entry that is passed over.
	Problem func(Problem)
	// Version is called with the content of metadata/version.
	Version func(string)
}

const maxVersionBytes = 64

// List reads a tarball of any version of Velero from the start. Only regular files count, and
// nothing is written. An entry with a hostile or foreign name, or too large a body, is passed over
// as a Problem. Damage, truncation or more than Limits.TotalBytes end the list; the error names the
// entry it happened at.
func List(ctx context.Context, r io.Reader, l Limits, v Visitor) error {
	l = l.withDefaults()
	in := &watchedReader{r: r}
	zip, err := gzip.NewReader(bufio.NewReaderSize(in, 256<<10))
	if err != nil {
		return in.blameSource(err, "start")
	}
	unpacked := &boundedReader{r: zip, left: l.TotalBytes}
	archive := tar.NewReader(unpacked)
	last := "start"
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return checkArchiveEnd(in, unpacked, last)
		}
		if err != nil {
			return in.blameSource(err, "after "+last)
		}
		last = h.Name
		if err := v.visitEntry(h, archive, l); err != nil {
			var own *visitError
			if errors.As(err, &own) {
				return own.err
			}
			return in.blameSource(err, h.Name)
		}
	}
}

// ListPart reads a part of a tarball as List does: a run of whole gzip members that hold whole
// entries, without the end of the archive.
func ListPart(ctx context.Context, r io.Reader, l Limits, v Visitor) error {
	end, err := endMember()
	if err != nil {
		return err
	}
	return List(ctx, io.MultiReader(r, bytes.NewReader(end)), l, v)
}

// endMember returns the end of an archive.
var endMember = sync.OnceValues(func() ([]byte, error) {
	var end bytes.Buffer
	zip := gzip.NewWriter(&end)
	_, err := zip.Write(make([]byte, endBytes))
	err = errors.Join(err, zip.Close())
	return end.Bytes(), err
})

// endBytes is how many zeros end a tar archive.
const endBytes = 1024

// checkArchiveEnd makes sure that the archive ended on purpose: with tar's end and with gzip's checksum.
func checkArchiveEnd(in *watchedReader, unpacked *boundedReader, last string) error {
	if _, err := io.Copy(io.Discard, unpacked); err != nil {
		return in.blameSource(err, "after "+last)
	}
	if unpacked.zeros < endBytes {
		return in.blameSource(io.ErrUnexpectedEOF, "no end of archive after "+last)
	}
	return nil
}

// visitError is an error of the visitor, not of the tarball.
type visitError struct{ err error }

func (e *visitError) Error() string { return e.err.Error() }

func (v *Visitor) visitEntry(h *tar.Header, body io.Reader, l Limits) error {
	name := strings.TrimPrefix(h.Name, "./")
	switch {
	case h.Typeflag == tar.TypeDir || h.Typeflag == tar.TypeXGlobalHeader:
		return nil
	case h.Typeflag != tar.TypeReg:
		v.addProblem(h.Name, fmt.Errorf("%w: entry of type %q is no regular file", ErrPath, h.Typeflag))
		return nil
	case strings.HasPrefix(name, "metadata/"):
		return v.checkVersion(name, body)
	}
	p, err := ParsePath(h.Name)
	if err != nil {
		v.addProblem(h.Name, err)
		return nil
	}
	if h.Size > l.EntryBytes {
		v.addProblem(h.Name, fmt.Errorf("%w: %d bytes, at most %d are allowed", ErrTooLarge, h.Size, l.EntryBytes))
		return nil
	}
	return v.Entry(Entry{Path: p, TarName: name, Size: h.Size, Body: body})
}

func (v *Visitor) addProblem(path string, err error) {
	if v.Problem != nil {
		v.Problem(Problem{Path: path, Err: err})
	}
}

func (v *Visitor) checkVersion(name string, body io.Reader) error {
	if name != "metadata/version" || v.Version == nil {
		return nil
	}
	text, err := io.ReadAll(io.LimitReader(body, maxVersionBytes))
	if err != nil {
		return err
	}
	v.Version(strings.TrimSpace(string(text)))
	return nil
}

// problems keeps the first hundred.
type problems struct {
	list  []Problem
	count int
}

func (p *problems) addProblem(x Problem) {
	p.count++
	if len(p.list) < 100 {
		p.list = append(p.list, x)
	}
}
