package filestore_test

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/filestore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/storetest"
)

// killedWriter runs this test binary as a process that is killed while it writes key, or composes
// it.
func killedWriter(t testing.TB, dir, key, how string) {
	t.Helper()
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestWriterToBeKilled$")
	child.Env = append(os.Environ(), "KILLED_DIR="+dir, "KILLED_KEY="+key, "KILLED_HOW="+how)
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	said := make([]byte, len(writing))
	_, err = io.ReadFull(out, said)
	require.NoError(t, err)
	require.Equal(t, writing, string(said))
	require.NoError(t, child.Process.Kill())
	require.Error(t, child.Wait())
}

const writing = "writing"

// blocked yields something and then, indefinitely, nothing.
type blocked struct{ *bytes.Reader }

func (b blocked) Read(p []byte) (int, error) {
	if b.Len() > 0 {
		return b.Reader.Read(p)
	}
	_, _ = os.Stdout.WriteString(writing)
	select {}
}

// TestWriterToBeKilled is the process of killedWriter, and nothing otherwise.
func TestWriterToBeKilled(t *testing.T) {
	dir, key := os.Getenv("KILLED_DIR"), os.Getenv("KILLED_KEY")
	if dir == "" {
		return
	}
	s, err := filestore.Open(dir)
	require.NoError(t, err)
	r := blocked{bytes.NewReader([]byte("half of it"))}
	if os.Getenv("KILLED_HOW") == "create" {
		err = s.Create(t.Context(), key, r, 1<<20)
	} else {
		err = s.Put(t.Context(), key, r, 1<<20)
	}
	t.Fatalf("the write ended: %v", err)
}

func TestUploads(t *testing.T) {
	storetest.RunUploads(t, func(t testing.TB) (objectstore.Store, func(string)) {
		s, dir := openStore(t)
		return s, func(key string) { killedWriter(t, dir, key, "put") }
	})
}

// A key that does not fit into the name of the temporary file must not be taken for a shorter one.
func TestLongKeysAreNotMistaken(t *testing.T) {
	s, dir := openStore(t)
	key := "backups/" + strings.Repeat("n", 250) + "/x"
	killedWriter(t, dir, key, "create")
	n, err := s.SweepUploads(t.Context(), "", func(u objectstore.Upload) (bool, error) {
		t.Errorf("offered as %s", u.Key)
		return true, nil
	})
	require.NoError(t, err)
	require.Zero(t, n)
	left, err := os.ReadDir(filepath.Join(dir, ".holdfast-tmp"))
	require.NoError(t, err)
	require.Len(t, left, 1, "for Open to remove a day later")
	require.NoError(t, objectstore.CreateBytes(t.Context(), s, key, []byte("x")))
}

// A writer whose temporary file was swept fails, and no object appears.
func TestASweptWriterFails(t *testing.T) {
	s, dir := openStore(t)
	r := &sweeping{Reader: bytes.NewReader(make([]byte, 100)), sweep: func() {
		n, err := s.SweepUploads(t.Context(), "", func(objectstore.Upload) (bool, error) { return true, nil })
		require.NoError(t, err)
		require.Equal(t, 1, n)
	}}
	require.Error(t, s.Create(t.Context(), "a/b", r, 100))
	_, err := s.Stat(t.Context(), "a/b")
	require.ErrorIs(t, err, objectstore.ErrNotFound)
	require.NoDirExists(t, filepath.Join(dir, ".holdfast-tmp"))
}

// sweeping sweeps while it is read.
type sweeping struct {
	*bytes.Reader
	sweep func()
}

func (s *sweeping) Read(p []byte) (int, error) {
	if s.sweep != nil {
		s.sweep()
		s.sweep = nil
	}
	return s.Reader.Read(p)
}

// WriteTo would bypass Read.
func (s *sweeping) WriteTo(w io.Writer) (int64, error) { return io.Copy(w, struct{ io.Reader }{s}) }
