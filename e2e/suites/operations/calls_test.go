package operations

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// callNotes is a directory in which the plugins leave a file for each call, for the test to read.
type callNotes string

// notedCall is a call of a plugin.
type notedCall struct {
	what, backup, item string
	// key is the idempotency key of a Start.
	key string
}

const apart = "+" // in no name of an object

func (c callNotes) callFile(parts ...string) string {
	return filepath.Join(string(c), strings.Join(parts, apart))
}

// noteCall leaves a file for a call.
func (c callNotes) noteCall(of notedCall) error {
	f, err := os.CreateTemp(string(c), strings.Join([]string{of.what, of.backup, of.item, "*"}, apart))
	if err != nil {
		return err
	}
	_, err = f.WriteString(of.key)
	return errors.Join(err, f.Close())
}

// callsOf returns the calls of one kind that a backup led to, by item.
func (c callNotes) callsOf(t *testing.T, what, backup string) map[string][]notedCall {
	t.Helper()
	found, err := filepath.Glob(c.callFile(what, backup, "*"))
	require.NoError(t, err)
	all := map[string][]notedCall{}
	for _, path := range found {
		parts := strings.Split(filepath.Base(path), apart)
		key, err := os.ReadFile(path)
		require.NoError(t, err)
		all[parts[2]] = append(all[parts[2]], notedCall{what: what, backup: backup, item: parts[2], key: string(key)})
	}
	return all
}

// notePolled notes that this process was asked for the progress of an operation of a backup.
func (c callNotes) notePolled(plugin, backup string) error {
	path := c.callFile("polled", backup, plugin)
	temporary := fmt.Sprintf("%s.%d.%d", path, os.Getpid(), time.Now().UnixNano())
	if err := os.WriteFile(temporary, fmt.Append(nil, os.Getpid()), 0o600); err != nil {
		return err
	}
	return os.Rename(temporary, path)
}

// lastPoll returns the process that was asked last, and when; 0 while none was.
func (c callNotes) lastPoll(t *testing.T, plugin, backup string) (pid int, at time.Time) {
	t.Helper()
	path := c.callFile("polled", backup, plugin)
	info, err := os.Stat(path)
	if os.IsNotExist(err) {
		return 0, at
	}
	require.NoError(t, err)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	_, err = fmt.Sscan(string(text), &pid)
	require.NoError(t, err)
	return pid, info.ModTime()
}

// releaseOperations ends what Start waits for with blocks.
func (c callNotes) releaseOperations(t *testing.T, backup string) {
	t.Helper()
	require.NoError(t, os.WriteFile(c.callFile("go", backup), nil, 0o600))
}

// isReleased reports whether releaseOperations was called.
func (c callNotes) isReleased(backup string) bool { return !c.releasedSince(backup).IsZero() }

// releasedSince is when releaseOperations was called; zero while it was not.
func (c callNotes) releasedSince(backup string) time.Time {
	info, err := os.Stat(c.callFile("go", backup))
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}
