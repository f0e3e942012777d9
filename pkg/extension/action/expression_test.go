package action_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
)

func TestExpressionsLookIntoTheObject(t *testing.T) {
	object := action.FromJSON([]byte(`{"kind":"Pod","spec":{"nodeName":"n1","replicas":3,"list":["a","b"]}}`))
	for expression, want := range map[string]bool{
		"":                        true,
		"has(item.spec.nodeName)": true,
		"has(item.spec.other)":    false,
		"item.spec.replicas > 2":  true,
		"'b' in item.spec.list && item.kind == 'Pod'": true,
	} {
		m, err := action.Selector{Expression: expression}.Compile(cluster)
		require.NoError(t, err, expression)
		got, err := m.Accepts(t.Context(), object)
		require.NoError(t, err, expression)
		require.Equal(t, want, got, expression)
	}
}

func TestExpressionsThatFailAreErrors(t *testing.T) {
	for _, expression := range []string{"item.", "1 + 1", "nosuch(item)", "other == 1"} {
		_, err := action.Selector{Expression: expression}.Compile(cluster)
		require.ErrorContains(t, err, "expression \"", expression)
	}
	long := action.FromJSON([]byte(`{"a":[` + strings.Repeat("1,", 2000) + `1]}`))
	for _, expression := range []string{"item.nosuch == 1", "item.a", "item.a.all(x, item.a.all(y, item.a.all(z, z == x)))"} {
		m, err := action.Selector{Expression: expression}.Compile(cluster)
		require.NoError(t, err)
		_, err = m.Accepts(t.Context(), long)
		require.ErrorIs(t, err, action.ErrExpression, expression)
	}
	m, err := action.Selector{Expression: "true"}.Compile(cluster)
	require.NoError(t, err)
	_, err = m.Accepts(t.Context(), action.FromJSON([]byte("null")))
	require.ErrorIs(t, err, action.ErrObject)
}

func TestNothingMatchesBeyondWhatAnActionMayTouch(t *testing.T) {
	m, err := action.Selector{Touches: []string{"po"}}.Compile(cluster)
	require.NoError(t, err)
	require.True(t, m.Resource(pods))
	require.False(t, m.Resource(deployments))
	m, err = action.Selector{Touches: []string{"*"}, IncludedResources: []string{"deploy"}}.Compile(cluster)
	require.NoError(t, err)
	require.True(t, m.Resource(deployments))
	require.False(t, m.Resource(pods))
}
