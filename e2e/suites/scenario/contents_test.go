package scenario

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-io/holdfast/e2e/harness/compare"
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
