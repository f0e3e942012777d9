package output_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/output"
)

func TestFormat(t *testing.T) {
	var f output.Format
	require.NoError(t, f.Set("table"))
	require.Equal(t, output.Text, f)
	require.Error(t, f.Set("xml"))
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
}

func TestUntil(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	require.Equal(t, "n/a", output.Until(time.Time{}, now))
	require.Equal(t, "29d", output.Until(now.Add(29*24*time.Hour+time.Minute), now))
	require.Equal(t, "3h ago", output.Until(now.Add(-3*time.Hour), now))
}

func TestSelector(t *testing.T) {
	a, b := &metav1.LabelSelector{MatchLabels: map[string]string{"a": "1"}}, &metav1.LabelSelector{MatchLabels: map[string]string{"b": "2"}}
	require.Equal(t, "<none>", output.Selector(nil, nil))
	require.Equal(t, "a=1", output.Selector(a, nil))
	require.Equal(t, "a=1 or b=2", output.Selector(nil, []*metav1.LabelSelector{a, b}))
	require.Equal(t, "<n/a>", output.Time(nil))
}
