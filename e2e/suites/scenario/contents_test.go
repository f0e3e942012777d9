package scenario

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-io/holdfast/e2e/harness/compare"
	"github.com/holdfast-io/holdfast/e2e/harness/seed"
)

// listedItem is an object as `backup items -o json` prints it.
type listedItem struct {
	metav1.TypeMeta
	Metadata metav1.ObjectMeta `json:"metadata"`
}

// lookInside compares what the command line shows of the loop's backup with the objects that the cluster had.
func lookInside(t *testing.T, w *world, before *compare.Snapshot) {
	t.Helper()
	run := func(verb string, args ...string) string {
		out, err := w.cli.Run(t.Context(), append([]string{"backup", verb, "loop", "--manifest-address", w.manifests}, args...)...)
		require.NoError(t, err)
		return out
	}
	var list struct{ Items []listedItem }
	require.NoError(t, json.Unmarshal([]byte(run("items", "--output", "json")), &list))
	listed := map[compare.Key]bool{}
	for _, i := range list.Items {
		listed[compare.Key{Group: i.GroupVersionKind().Group, Kind: i.Kind, Namespace: i.Metadata.Namespace, Name: i.Metadata.Name}] = true
	}
	climates, notes := "", 0
	for key, object := range before.Objects {
		require.True(t, listed[key], key.String())
		switch {
		case key.Kind == "Climate":
			climates = key.Name
		case strings.HasPrefix(key.Name, "note-"):
			notes++
		case key.Kind == "Secret":
			showSecret(t, run, key, object)
		}
	}
	require.Contains(t, run("verify"), " compared with its manifest: 0 faults.")
	tree := run("tree", "climate/"+climates)
	require.Equal(t, notes, strings.Count(tree, "ConfigMap/note-"), "all that a Climate owns, over four levels and all namespaces:\n%s", tree)
	searchBackups(t, w, before)
}

// searchBackups backs up the same again, and wants every object found in both backups and unchanged.
func searchBackups(t *testing.T, w *world, before *compare.Snapshot) {
	t.Helper()
	run := func(args ...string) (string, error) {
		return w.cli.Run(t.Context(), append(args, "--manifest-address", w.manifests)...)
	}
	_, err := w.cli.Run(t.Context(), "backup", "create", "again", "--include-namespaces", strings.Join(seed.Options{}.Namespaces(), ","), "--include-cluster-resources",
		"--storage-location", w.location, "--wait")
	require.NoError(t, err)
	var out string
	var list struct {
		Items []struct {
			listedItem
			Found struct{ Backups int }
		}
		Coverage struct {
			Backups, Indexed int
			Incomplete       bool // also where a page was read before the last backup was indexed
		}
	}
	require.Eventually(t, func() bool {
		out, err = run("search", "--output", "json")
		list.Items = nil
		return err == nil && json.Unmarshal([]byte(out), &list) == nil && list.Coverage.Indexed == 2 && list.Coverage.Backups == 2 && !list.Coverage.Incomplete
	}, patience, 200*time.Millisecond)
	found := map[compare.Key]int{}
	for _, i := range list.Items {
		found[compare.Key{Group: i.GroupVersionKind().Group, Kind: i.Kind, Namespace: i.Metadata.Namespace, Name: i.Metadata.Name}] = i.Found.Backups
	}
	for key, object := range before.Objects {
		require.Equal(t, 2, found[key], key.String())
		if key.Kind != "Secret" {
			continue
		}
		history, err := run("history", "secret/"+key.Name, "--namespace", key.Namespace, "--output", "jsonpath={.items[*].change}")
		require.NoError(t, err)
		require.Equal(t, "Unchanged First", history)
		values, _ := object["data"].(map[string]any)
		for _, value := range values {
			if text, ok := value.(string); ok && len(text) > 8 {
				require.NotContains(t, out, text)
			}
		}
	}
	_, err = w.cli.Run(t.Context(), "backup", "delete", "again", "--confirm")
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		out, err = run("search", "--backup", "again")
		return err == nil && strings.HasPrefix(out, "No objects in 1 backups match.")
	}, patience, 200*time.Millisecond, "what is deleted is forgotten")
}

// showSecret wants the values of a Secret on request only.
func showSecret(t *testing.T, run func(string, ...string) string, key compare.Key, object map[string]any) {
	t.Helper()
	values, _ := object["data"].(map[string]any)
	named := []string{"secret/" + key.Name, "--namespace", key.Namespace}
	masked := run("cat", named...)
	whole := struct{ Data map[string]any }{}
	require.NoError(t, json.Unmarshal([]byte(run("cat", append(named, "--show-secrets", "--output", "json")...)), &whole))
	require.Len(t, whole.Data, len(values))
	for name, value := range values {
		require.Equal(t, value, whole.Data[name])
		if text, ok := value.(string); ok && len(text) > 8 { // shorter ones may be in another field
			require.NotContains(t, masked, text)
		}
	}
}
