package plugin_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/plugin"
)

func parseObject(t *testing.T, text string) map[string]any {
	t.Helper()
	var content map[string]any
	require.NoError(t, json.Unmarshal([]byte(text), &content))
	return content
}

func TestExpressionsSelectObjects(t *testing.T) {
	claim := parseObject(t, `{"kind":"PersistentVolumeClaim","metadata":{"name":"a","labels":{"tier":"db"}},"spec":{"volumeName":"pv-1","replicas":3,"modes":["RWO"]}}`)
	for text, want := range map[string]bool{
		`has(item.spec.volumeName)`:                               true,
		`has(item.spec.storageClassName)`:                         false,
		`has(item.status) && has(item.status.phase)`:              false,
		`item.kind == "PersistentVolumeClaim"`:                    true,
		`item.metadata.labels["tier"] in ["db", "cache"]`:         true,
		`item.spec.replicas > 2`:                                  true,
		`item.spec.modes.exists(m, m == "RWX")`:                   false,
		`"x" in item.metadata.labels`:                             false,
		`item.metadata.name.startsWith("a") || item.nope == "no"`: true,
	} {
		e, err := plugin.CompileExpression(text)
		require.NoError(t, err, text)
		got, err := e.Matches(t.Context(), claim)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
}

func TestCompileRefusesWhatCannotSelect(t *testing.T) {
	for _, text := range []string{``, `item.`, `items.spec`, `"text"`, `1 + 1`, `has(item)`, `item.kind = "Pod"`} {
		_, err := plugin.CompileExpression(text)
		require.ErrorContains(t, err, "expression", text)
	}
}

func TestMatchesFailsWhereTheExpressionDoes(t *testing.T) {
	for text, message := range map[string]string{
		`item.spec.volumeName == "x"`: "spec",
		`item.kind`:                   "want bool",
		// Loops within loops are ended, however many objects there are.
		`item.all.all(a, item.all.all(b, item.all.all(c, item.all.all(d, a + b + c + d >= 0.0))))`: "cost limit",
	} {
		e, err := plugin.CompileExpression(text)
		require.NoError(t, err, text)
		_, err = e.Matches(t.Context(), parseObject(t, `{"kind":"Pod","all":[`+strings.Repeat("1,", 199)+`1]}`))
		require.ErrorContains(t, err, message, text)
	}
}

func FuzzCompile(f *testing.F) {
	for _, seed := range []string{`has(item.spec)`, `item.a[0].b > 1`, `[1,2].exists(x, x == item)`, `"` + "\x00", `item.matches("(a+)+$")`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		e, err := plugin.CompileExpression(text)
		if err != nil {
			return
		}
		_, _ = e.Matches(t.Context(), map[string]any{"kind": "Pod", "spec": map[string]any{"a": []any{int64(1), "x", nil}}})
	})
}
