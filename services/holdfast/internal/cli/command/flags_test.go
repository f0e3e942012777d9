package command_test

import (
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/command"
)

func TestMap(t *testing.T) {
	var m map[string]string
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	command.MapVar(fs, &m, "map", ":", "")
	require.NoError(t, fs.Parse([]string{"--map", "b:2, a:x:y", "--map", "c:"}))
	require.Equal(t, map[string]string{"a": "x:y", "b": "2", "c": ""}, m)
	for _, bad := range []string{"", "a", ":v", "a:again"} {
		require.Error(t, fs.Set("map", bad), bad)
	}
}

func TestOptionalBool(t *testing.T) {
	var b *bool
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	command.OptionalBoolVar(fs, &b, "b", "")
	require.NoError(t, fs.Parse(nil))
	require.Nil(t, b)
	require.NoError(t, fs.Parse([]string{"--b"}))
	require.True(t, *b)
	require.NoError(t, fs.Parse([]string{"--b=false"}))
	require.False(t, *b)
	require.Error(t, fs.Parse([]string{"--b=perhaps"}))
}

func TestSelectors(t *testing.T) {
	var one *metav1.LabelSelector
	var several []*metav1.LabelSelector
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	command.SelectorVar(fs, &one, "selector", "l", "")
	command.OrSelectorVar(fs, &several, "or-selector", "")
	require.NoError(t, fs.Parse([]string{"-l", "a=b,c in (d,e)", "--or-selector", "x=1 or y"}))
	require.Equal(t, map[string]string{"a": "b"}, one.MatchLabels)
	require.Len(t, one.MatchExpressions, 1)
	require.Len(t, several, 2)
	require.Equal(t, map[string]string{"x": "1"}, several[0].MatchLabels)
	require.Error(t, fs.Set("selector", "a in"))
	require.Error(t, fs.Set("or-selector", "a=b or )"))
}
