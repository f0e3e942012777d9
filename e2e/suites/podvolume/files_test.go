package podvolume

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// singleFiles has the command line list, print and save files of a backup whose volumes are gone.
func (b *bed) singleFiles(t *testing.T) {
	const name = "archive"
	dirs := b.createApplication(t, name, nil)
	large := make([]byte, 20<<20)
	_, _ = rand.Read(large) // never fails
	require.NoError(t, os.MkdirAll(filepath.Join(dirs["data"], "var", "a\nb"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dirs["data"], "var", "large"), large, 0o640))
	require.NoError(t, os.WriteFile(filepath.Join(dirs["data"], "var", "a\nb", "-x"), []byte("content\n"), 0o600))
	b.createBackup(t, name)
	b.BackupCompletes(t, name)
	b.destroy(t, name)

	cli, address := b.CLI(t), b.Fleet.Of("volume-mover")[0].GRPC
	cli.Output = nil // a file is no log
	run := func(args ...string) (string, error) {
		return cli.Run(t.Context(), append([]string{"backup", "files"}, append(args, "--volume-address", address)...)...)
	}
	out, err := run(name, "-o", "jsonpath={[*].claim} {[*].volume}")
	require.NoError(t, err)
	require.Equal(t, "data data scratch", out)
	out, err = run(name, "data", "var", "-n", name, "-o", "json")
	require.NoError(t, err)
	var listed []struct {
		Name, Type, Mode string
		Size             int
	}
	require.NoError(t, json.Unmarshal([]byte(out), &listed))
	require.Len(t, listed, 2)
	require.Equal(t, "a\nb", listed[0].Name)
	require.Equal(t, "directory", listed[0].Type)
	require.Equal(t, []any{"large", "file", "0640", len(large)}, []any{listed[1].Name, listed[1].Type, listed[1].Mode, listed[1].Size})

	out, err = run("cat", name, "db/data", "var/a\nb/-x")
	require.NoError(t, err)
	require.Equal(t, "content\n", out)
	saved := filepath.Join(t.TempDir(), "saved")
	_, err = run("download", name, "data", "/var/large", "-o", saved)
	require.NoError(t, err)
	got, err := os.ReadFile(saved)
	require.NoError(t, err)
	require.Equal(t, sha256.Sum256(large), sha256.Sum256(got))

	_, err = run("cat", name, "data", "var/none")
	require.ErrorContains(t, err, `"var/none" in the volume: not found`)
	_, err = run("cat", name, "none", "var/large")
	require.ErrorContains(t, err, "a volume of that name with files")
	_, err = run("none")
	require.ErrorContains(t, err, `backup "none": not found`)
	b.requireNoMovers(t)
}
