package bench

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPollsOfSeveralProcesses(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"1-10": "100 a\n500 a\n600 b\n",
		"1-11": "900 a\n",
		"2-20": "250 a\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	p, err := readPolls(dir)
	require.NoError(t, err)
	require.Equal(t, 2, p.countProcesses())
	at := func(n int64) time.Time { return time.Unix(0, n) }
	require.Equal(t, time.Duration(400), p.longestPause(at(200), at(1000)), "between two replicas' calls; b waits until the end")
	require.Equal(t, time.Duration(1400), p.longestPause(at(200), at(2000)))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "1-12"), []byte("nonsense"), 0o600))
	_, err = readPolls(dir)
	require.Error(t, err)
}
