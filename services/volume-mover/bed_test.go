package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/objectstore/filestore"
	"github.com/holdfast-io/holdfast/pkg/volumedata/repository"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/command"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/outcome"
)

// asMover makes the test binary be the mover.
const asMover = "TEST_AS_VOLUME_MOVER"

func TestMain(m *testing.M) {
	if os.Getenv(asMover) != "" {
		main()
	}
	os.Exit(m.Run())
}

const password = "secret"

// bed is a location in a directory.
type bed struct {
	t      *testing.T
	bucket string
	common []string
}

func newBed(t *testing.T) *bed {
	dir := t.TempDir()
	b := &bed{t: t, bucket: filepath.Join(dir, "bucket")}
	require.NoError(t, os.Mkdir(b.bucket, 0o700))
	location := fmt.Sprintf(`apiVersion: velero.io/v1
kind: BackupStorageLocation
metadata: {name: default, namespace: velero}
spec: {provider: holdfast.io/file, config: {path: %q}, objectStorage: {bucket: bucket}}
`, dir)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "location.yaml"), []byte(location), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "password"), []byte(password+"\n"), 0o600))
	b.common = []string{"--location", filepath.Join(dir, "location.yaml"), "--password-file", filepath.Join(dir, "password"), "--namespace", "app", "--cache-dir", dir}
	return b
}

// run runs the command in this process.
func (b *bed) run(ctx context.Context, args ...string) outcome.Result {
	b.t.Helper()
	var out, log bytes.Buffer
	code := command.Execute(ctx, append(append([]string{"move"}, args...), b.common...), &out, &log)
	b.t.Log(log.String())
	result := lastResult(b.t, out.Bytes())
	want := map[outcome.Phase]int{outcome.Completed: command.ExitCompleted, outcome.Canceled: command.ExitCanceled, outcome.Failed: command.ExitFailed, outcome.PartiallyFailed: command.ExitFailed}
	require.Equal(b.t, want[result.Phase], code, "%+v", result)
	return result
}

func (b *bed) upload(source, pod string, args ...string) outcome.Result {
	b.t.Helper()
	return b.run(b.t.Context(), append([]string{"upload", "--source", source, "--pod", pod, "--volume", "data", "--claim-uid", "1", "--create-repository"}, args...)...)
}

func (b *bed) restore(id, target string, args ...string) outcome.Result {
	b.t.Helper()
	return b.run(b.t.Context(), append([]string{"restore", "--snapshot", id, "--target", target}, args...)...)
}

// start starts the mover as a process.
func (b *bed) start(args ...string) (*exec.Cmd, *bytes.Buffer) {
	b.t.Helper()
	command := exec.CommandContext(b.t.Context(), os.Args[0], append(append([]string{"move"}, args...), b.common...)...)
	out := &bytes.Buffer{}
	command.Env, command.Stdout, command.Stderr = append(os.Environ(), asMover+"=1"), out, os.Stderr
	require.NoError(b.t, command.Start())
	return command, out
}

// open opens the repository with the library.
func (b *bed) open() *repository.Repository {
	b.t.Helper()
	store, err := filestore.Open(b.bucket)
	require.NoError(b.t, err)
	r, err := repository.Open(b.t.Context(), store, repository.Options{
		Namespace: "app", Password: password, Dir: b.t.TempDir(), Fatal: func(err error) { b.t.Error(err) },
	})
	require.NoError(b.t, err)
	b.t.Cleanup(func() { require.NoError(b.t, r.Close(context.WithoutCancel(b.t.Context()))) })
	return r
}

// blobs returns the blobs whose name begins with prefix.
func (b *bed) blobs(prefix string) []string {
	b.t.Helper()
	found, err := filepath.Glob(filepath.Join(b.bucket, "kopia/app", prefix+"*"))
	require.NoError(b.t, err)
	return found
}

// lastResult is the last line of the output.
func lastResult(t *testing.T, out []byte) outcome.Result {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	var last struct{ Result *outcome.Result }
	require.NoError(t, json.Unmarshal([]byte(lines[len(lines)-1]), &last), "%s", out)
	require.NotNil(t, last.Result, "%s", out)
	return *last.Result
}

// describe maps every entry of a tree to all that a snapshot keeps of it.
func describe(t *testing.T, root string) map[string]string {
	t.Helper()
	found := map[string]string{}
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		st := info.Sys().(*syscall.Stat_t)
		content := ""
		switch {
		case info.Mode().IsRegular():
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			content = fmt.Sprintf("%x %d bytes, sparse %v", sha256.Sum256(data), len(data), st.Blocks*512 < st.Size)
		case info.Mode()&fs.ModeSymlink != 0:
			if content, err = os.Readlink(path); err != nil {
				return err
			}
		case !info.IsDir():
			return nil // not stored
		}
		name, err := filepath.Rel(root, path)
		found[name] = fmt.Sprintf("%v %d:%d %s %s", info.Mode(), st.Uid, st.Gid, info.ModTime().UTC().Format(time.RFC3339Nano), content)
		return err
	}))
	return found
}

func mustWrite(t *testing.T, path, content string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
}
