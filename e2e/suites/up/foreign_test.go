package up

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/product"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// forgeVelerosBackup copies a backup in the bucket under another name, with the files that Velero writes: there is no
// manifest, and the tarball is one gzip stream.
func forgeVelerosBackup(t *testing.T, dir, name, forged string) {
	t.Helper()
	files, err := os.ReadDir(filepath.Join(dir, name))
	require.NoError(t, err)
	require.NoError(t, os.Mkdir(filepath.Join(dir, forged), 0o700))
	object := map[string]any{}
	for _, f := range files {
		data, err := os.ReadFile(filepath.Join(dir, name, f.Name()))
		require.NoError(t, err)
		suffix, named := strings.CutPrefix(f.Name(), name)
		switch {
		case f.Name() == "velero-backup.json":
			require.NoError(t, json.Unmarshal(data, &object))
			continue
		case !named:
			continue // a file of Holdfast's
		case suffix == ".tar.gz":
			in, err := gzip.NewReader(bytes.NewReader(data))
			require.NoError(t, err)
			var out bytes.Buffer
			zip := gzip.NewWriter(&out)
			_, err = io.Copy(zip, in) //nolint:gosec // of the test's own
			require.NoError(t, errors.Join(err, zip.Close()))
			data = out.Bytes()
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, forged, forged+suffix), data, 0o600))
	}
	metadata, ok := object["metadata"].(map[string]any)
	require.True(t, ok)
	metadata["name"], metadata["uid"] = forged, "11111111-2222-4333-8444-555555555555"
	delete(metadata, "annotations")
	data, err := json.Marshal(object)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, forged, "velero-backup.json"), data, 0o600))
}

// lookIntoForeign has every command about contents answer for the backup in Velero's layout what it answers for the
// backup that this is a copy of.
func lookIntoForeign(t *testing.T, c client.Client, cli *product.CLI, indexer, runner string) {
	t.Helper()
	location := &velerov1.BackupStorageLocation{}
	require.NoError(t, c.Get(t.Context(), types.NamespacedName{Namespace: cli.Namespace, Name: "default"}, location))
	before := location.DeepCopy()
	location.Spec.BackupSyncPeriod = &metav1.Duration{Duration: time.Second}
	require.NoError(t, c.Patch(t.Context(), location, client.MergeFrom(before)))
	require.Eventually(t, func() bool {
		b := &velerov1.Backup{}
		return c.Get(t.Context(), types.NamespacedName{Namespace: cli.Namespace, Name: "foreign"}, b) == nil && b.Status.Phase == velerov1.BackupPhaseCompleted
	}, patience, 200*time.Millisecond)

	run := func(args ...string) string {
		out, err := cli.Run(t.Context(), append(args, "--manifest-address", indexer)...)
		if exit := new(product.ExitError); args[1] != "diff" || !errors.As(err, &exit) || exit.Code != 1 {
			require.NoError(t, err)
		}
		return out
	}
	for _, line := range []string{
		"items X -o wide", "items X --kind deploy,cm --name w* -l app!=x -o name", "tree X -n shop", "cat X secret/db -n shop", "cat X deploy/web -n shop --show-managed-fields",
		"related X deploy/web -n shop", "related X secret/db -n shop --reverse", "diff X today -n shop", "diff today X",
	} {
		ask := func(name string) string {
			return run(append([]string{"backup"}, strings.Fields(strings.Replace(line, "X", name, 1))...)...)
		}
		require.NotEmpty(t, ask("yesterday"), line)
		require.Equal(t, ask("yesterday"), ask("foreign"), line)
	}
	require.Contains(t, run("backup", "diff", "yesterday", "foreign"), "No differences, ")
	require.Contains(t, run("backup", "verify", "foreign"), " compared with a manifest made of the tarball, since it has none of its own that can be read: 0 faults.")
	require.Eventually(t, func() bool { return strings.Contains(run("search", "web*", "--backup", "foreign"), "Deployment") }, patience, 200*time.Millisecond)

	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"}}
	require.NoError(t, c.Delete(t.Context(), secret))
	item := []string{"--from-backup", "foreign", "--item", "secret/db", "-n", "shop"}
	planned, err := cli.Run(t.Context(), append([]string{"restore", "plan", "--restore-address", runner, "-o", "jsonpath={.counts}"}, item...)...)
	require.NoError(t, err)
	require.JSONEq(t, `{"create": 1, "unchanged": 1}`, planned)
	_, err = cli.Run(t.Context(), append([]string{"restore", "create", "foreign-secret", "--wait"}, item...)...)
	require.NoError(t, err)
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(secret), secret))
	require.Equal(t, "correct-horse", string(secret.Data["password"]))
}
