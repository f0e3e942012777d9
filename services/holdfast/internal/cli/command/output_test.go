package command_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/command"
)

func TestDocumentsHaveFormats(t *testing.T) {
	var f command.Output
	require.NoError(t, f.Set("table"))
	require.True(t, f.IsText())
	for _, bad := range []string{"xml", "name", "wide", "custom-columns=A:.a", "jsonpath={", "json=x"} {
		require.Error(t, f.Set(bad), bad)
	}
	value := map[string]any{"b": 1, "a": []string{"x"}}
	var out bytes.Buffer
	require.NoError(t, f.Set("yaml"))
	require.NoError(t, f.Print(&out, value))
	require.Equal(t, "a:\n- x\nb: 1\n", out.String())
	out.Reset()
	require.NoError(t, f.Set("json"))
	require.NoError(t, f.Print(&out, value))
	require.JSONEq(t, `{"a":["x"],"b":1}`, out.String())
	require.Error(t, f.Print(&out, make(chan int)))
	out.Reset()
	require.NoError(t, f.Set("jsonpath={.a[0]} {.b} {.absent}"))
	require.NoError(t, f.Print(&out, value))
	require.Equal(t, "x 1 ", out.String())
}

func TestUntil(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	require.Equal(t, "n/a", command.FormatUntil(time.Time{}, now))
	require.Equal(t, "29d", command.FormatUntil(now.Add(29*24*time.Hour+time.Minute), now))
	require.Equal(t, "3h ago", command.FormatUntil(now.Add(-3*time.Hour), now))
}

func TestSelector(t *testing.T) {
	a, b := &metav1.LabelSelector{MatchLabels: map[string]string{"a": "1"}}, &metav1.LabelSelector{MatchLabels: map[string]string{"b": "2"}}
	require.Equal(t, "<none>", command.FormatSelector(nil, nil))
	require.Equal(t, "a=1", command.FormatSelector(a, nil))
	require.Equal(t, "a=1 or b=2", command.FormatSelector(nil, []*metav1.LabelSelector{a, b}))
	require.Equal(t, "<n/a>", command.FormatTime(nil))
}
