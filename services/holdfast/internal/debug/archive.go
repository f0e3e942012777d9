package debug

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"k8s.io/utils/clock"
)

const (
	// fileBytes bounds one file of the bundle, totalBytes all of them, before compression.
	fileBytes  = 4 << 20
	totalBytes = 256 << 20
)

// errFull means that the bundle has its size.
var errFull = errors.New("the bundle is full")

// bundleArchive is a bundle that is being written. An error of the output is kept, and nothing is written
// after it.
type bundleArchive struct {
	zip   *gzip.Writer
	tar   *tar.Writer
	clock clock.PassiveClock
	left  int64
	files int
	// problems are what the bundle lacks, and why.
	problems []string
	err      error
}

func newArchive(w io.Writer, clk clock.PassiveClock) *bundleArchive {
	zip := gzip.NewWriter(w)
	return &bundleArchive{zip: zip, tar: tar.NewWriter(zip), clock: clk, left: totalBytes}
}

// addFile writes a file, of which the end is kept if it is too large. The caller has scrubbed it.
func (a *bundleArchive) addFile(name string, data []byte) {
	if a.err != nil {
		return
	}
	if cut := len(data) - fileBytes; cut > 0 {
		a.noteProblem(name, fmt.Errorf("the first %d bytes are left out", cut))
		data = data[cut:]
	}
	if int64(len(data)) > a.left {
		a.noteProblem(name, errFull)
		return
	}
	a.left -= int64(len(data))
	a.writeFile(name, data)
}

func (a *bundleArchive) writeFile(name string, data []byte) {
	const readable = 0o600
	header := &tar.Header{Name: "holdfast-debug/" + name, Mode: readable, Size: int64(len(data)), ModTime: a.clock.Now().Truncate(time.Second)}
	if a.err = a.tar.WriteHeader(header); a.err != nil {
		return
	}
	if _, a.err = a.tar.Write(data); a.err == nil {
		a.files++
	}
}

// noteProblem notes what is missing.
func (a *bundleArchive) noteProblem(what string, err error) {
	a.problems = append(a.problems, what+": "+scrubText(err.Error()))
}

// runPart runs what adds some of the bundle, within a limit; its error is a problem.
func (a *bundleArchive) runPart(ctx context.Context, what string, limit time.Duration, run func(context.Context) error) {
	if a.err != nil || ctx.Err() != nil {
		return
	}
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := run(limited); err != nil {
		a.noteProblem(what, err)
	}
}

// close ends the bundle.
func (a *bundleArchive) close() error {
	if a.err != nil {
		return a.err
	}
	return errors.Join(a.tar.Close(), a.zip.Close())
}
