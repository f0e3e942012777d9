package scenario

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/e2e/harness/compare"
)

// checkTarball lists the tarball with GNU tar and compares what it lists with the resource list in
// the bucket and with the live objects.
func checkTarball(t *testing.T, w *world, backup string, live *compare.Snapshot) {
	t.Helper()
	listed := gnuTarList(t, downloadTarball(t, w, backup))
	require.Contains(t, listed, "metadata/version")

	plain, preferred := map[string]int{}, map[string]int{}
	for _, path := range listed {
		parts := strings.Split(path, "/")
		if parts[0] != "resources" {
			require.Equal(t, "metadata/version", path, "only resources and the version lie at the top")
			continue
		}
		require.GreaterOrEqual(t, len(parts), 4, path)
		target := plain
		rest := parts[2:]
		if strings.HasSuffix(parts[2], "-preferredversion") {
			target, rest = preferred, parts[3:]
		}
		switch {
		case len(rest) == 2 && rest[0] == "cluster":
			target[strings.TrimSuffix(rest[1], ".json")]++
		case len(rest) == 3 && rest[0] == "namespaces":
			target[rest[1]+"/"+strings.TrimSuffix(rest[2], ".json")]++
		default:
			require.Fail(t, "unexpected path", path)
		}
	}
	require.Equal(t, plain, preferred, "every object is there twice")
	require.Equal(t, resourceList(t, w, backup), plain, "the resource list names what the tarball holds")

	held := slices.Collect(maps.Keys(plain))
	for key := range live.Objects {
		name := key.Name
		if key.Namespace != "" {
			name = key.Namespace + "/" + name
		}
		require.Contains(t, held, name, "%s is in the tarball", key)
	}
}

// gnuTarList lists a tarball with GNU tar, which the test needs as an independent reader of the
// format.
func gnuTarList(t *testing.T, path string) []string {
	t.Helper()
	version, err := exec.CommandContext(t.Context(), "tar", "--version").Output()
	require.NoError(t, err, "GNU tar is needed")
	require.Contains(t, string(version), "GNU tar")
	cmd := exec.CommandContext(t.Context(), "tar", "--quoting-style=literal", "-tzf", path)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	output, err := cmd.Output()
	require.NoError(t, err, stderr.String())
	require.Empty(t, stderr.String(), "GNU tar has nothing to complain about")
	return strings.Split(strings.TrimSuffix(string(output), "\n"), "\n")
}

// resourceList reads <backup>-resource-list.json.gz (Velero 1.18 layout: "group/version/Kind" to
// "namespace/name") and counts the names.
func resourceList(t *testing.T, w *world, backup string) map[string]int {
	t.Helper()
	compressed, err := w.read(t.Context(), "backups/"+backup+"/"+backup+"-resource-list.json.gz")
	require.NoError(t, err)
	reader, err := gzip.NewReader(bytes.NewReader(compressed))
	require.NoError(t, err)
	var lists map[string][]string
	require.NoError(t, json.NewDecoder(reader).Decode(&lists))
	names := map[string]int{}
	for _, list := range lists {
		for _, name := range list {
			names[name]++
		}
	}
	return names
}
