package bench

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestContinueTokenIsReadFromATruncatedPage(t *testing.T) {
	token, err := continueToken([]byte(`{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"7","continue":"abc"},"items":[{"meta`))
	require.NoError(t, err)
	require.Equal(t, "abc", token)

	_, err = continueToken([]byte(`{"kind":"Status"}`))
	require.Error(t, err)
}

func TestOwnProcessIsMeasured(t *testing.T) {
	peak, err := peakRSS(os.Getpid())
	require.NoError(t, err)
	require.Greater(t, peak, 1.0)
	_, err = cpuTime(os.Getpid())
	require.NoError(t, err)
}

func TestTheLastLineIsTheFigure(t *testing.T) {
	peak, err := lastNumber("1000 objects in 3s, peak in MiB:\n97.5\n")
	require.NoError(t, err)
	require.InDelta(t, 97.5, peak, 0)
	_, err = lastNumber("")
	require.Error(t, err)
}

func TestFiguresAreOneFlatObject(t *testing.T) {
	figures := &Figures{Log: &bytes.Buffer{}}
	figures.Set("b.2", 2)
	figures.Set("a.1", 1.5)
	path := filepath.Join(t.TempDir(), "out", "bench.json")
	require.NoError(t, figures.Write(path))
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.JSONEq(t, `{"a.1":1.5,"b.2":2}`, string(data))
}
