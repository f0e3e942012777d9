// Package storetest is the conformance suite of objectstore.Store. Every implementation runs it,
// the fake too: what it does not check, callers cannot rely on.
package storetest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// Lack names something that a kind of store cannot know, for want of a way to ask.
type Lack string

// What a store behind a plugin lacks.
const (
	// Times are the ModTime of objects.
	Times Lack = "times"
	// ListedInfo is all that a list has of an object beside its key.
	ListedInfo Lack = "listed info"
)

// Run checks the stores that open returns, but for what they lack. Each call must return a new,
// empty store; it closes it itself (t.Cleanup).
func Run(t *testing.T, open func(t testing.TB) objectstore.Store, lacks ...Lack) {
	t.Helper()
	checks := map[string]func(*testing.T, objectstore.Store){
		string(Times):      checkTimes,
		string(ListedInfo): checkListedInfo,
	}
	for _, lack := range lacks {
		delete(checks, string(lack))
	}
	for name, check := range map[string]func(*testing.T, objectstore.Store){
		"absent":          checkAbsent,
		"put":             checkPut,
		"exists":          checkExists,
		"create":          checkCreate,
		"create race":     checkCreateRace,
		"create vs put":   checkCreateAfterPut,
		"size":            checkSize,
		"failed reader":   checkFailedReader,
		"rewind":          checkReaderPosition,
		"ranges":          checkRanges,
		"keys":            checkKeys,
		"legal keys":      checkLegalKeys,
		"list order":      checkListOrder,
		"list many":       checkListMany,
		"list stop":       checkListStop,
		"list prefixes":   checkListPrefixes,
		"delete":          checkDelete,
		"delete race":     checkDeleteRace,
		"compose":         checkCompose,
		"compose large":   checkComposeLarge,
		"compose errors":  checkComposeErrors,
		"compose race":    checkComposeRace,
		"prefix view":     checkPrefixView,
		"read-only view":  checkReadOnlyView,
		"cancelled":       checkCancelled,
		"snapshot reader": checkOpenReaderSurvives,
	} {
		checks[name] = check
	}
	for name, check := range checks {
		t.Run(name, func(t *testing.T) { check(t, open(t)) })
	}
}

func putObject(t testing.TB, s objectstore.Store, key, content string) {
	t.Helper()
	require.NoError(t, objectstore.PutBytes(t.Context(), s, key, []byte(content)))
}

func getObject(t testing.TB, s objectstore.Store, key string) string {
	t.Helper()
	rc, err := s.Get(t.Context(), key)
	require.NoError(t, err)
	return readAll(t, rc)
}

func getRange(t testing.TB, s objectstore.Store, key string, off, n int64) string {
	t.Helper()
	rc, err := s.GetRange(t.Context(), key, off, n)
	require.NoError(t, err)
	return readAll(t, rc)
}

func readAll(t testing.TB, rc io.ReadCloser) string {
	t.Helper()
	data, err := io.ReadAll(rc)
	require.NoError(t, err)
	require.NoError(t, rc.Close())
	return string(data)
}

func requireAbsent(t testing.TB, s objectstore.Store, key string) {
	t.Helper()
	_, err := s.Stat(t.Context(), key)
	require.ErrorIs(t, err, objectstore.ErrNotFound)
	require.NotContains(t, listKeys(t, s, ""), key)
}

func listKeys(t testing.TB, s objectstore.Store, prefix string) []string {
	t.Helper()
	keys := []string{}
	require.NoError(t, s.List(t.Context(), prefix, func(i objectstore.Info) error {
		keys = append(keys, i.Key)
		return nil
	}))
	return keys
}

func listPrefixes(t testing.TB, s objectstore.Store, prefix string) []string {
	t.Helper()
	dirs, err := s.ListPrefixes(t.Context(), prefix)
	require.NoError(t, err)
	return dirs
}

// patternBytes returns n bytes that differ from place to place, so that a misplaced range shows.
func patternBytes(n int, seed byte) []byte {
	data := make([]byte, n)
	for i := range data {
		data[i] = seed + byte(i) + byte(i>>8)*31 + byte(i>>16)*17
	}
	return data
}

var errBroken = errors.New("reader broke on purpose")

// broken yields some bytes and then fails.
type broken struct{ left int }

func (b *broken) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, errBroken
	}
	n := min(len(p), b.left)
	copy(p, bytes.Repeat([]byte("x"), n))
	b.left -= n
	return n, nil
}

// Seek reports that the reader is long enough, as a file with an unreadable sector would.
func (*broken) Seek(_ int64, whence int) (int64, error) {
	if whence == io.SeekEnd {
		return 1 << 20, nil
	}
	return 0, nil
}

// raceCalls runs n calls at once and returns their errors.
func raceCalls(ctx context.Context, n int, call func(ctx context.Context, i int) error) []error {
	errs := make([]error, n)
	done := make(chan struct{})
	start := make(chan struct{})
	for i := range n {
		go func() {
			<-start
			errs[i] = call(ctx, i)
			done <- struct{}{}
		}()
	}
	close(start)
	for range n {
		<-done
	}
	return errs
}
