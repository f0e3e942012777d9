package action_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
)

type labelled struct{ name, origin string }

func (l labelled) Name() string { return l.name }

func (labelled) AppliesTo(context.Context) (action.Selector, error) { return action.Selector{}, nil }

func TestActionsRunInTheOrderOfTheirNamesAndBuiltInOnesHideOthers(t *testing.T) {
	t.Parallel()
	builtin := []labelled{{"velero.io/pod", "builtin"}, {"velero.io/pv", "builtin"}}
	plugins := []labelled{{"z.io/a", "plugin"}, {"a.io/x", "plugin"}, {"velero.io/pv", "plugin"}, {"a.io/b", "plugin"}}
	merged, hidden := action.Merge(builtin, plugins)
	require.Equal(t, []labelled{
		{"a.io/b", "plugin"}, {"a.io/x", "plugin"}, {"velero.io/pod", "builtin"}, {"velero.io/pv", "builtin"}, {"z.io/a", "plugin"},
	}, merged)
	require.Equal(t, []labelled{{"velero.io/pv", "plugin"}}, hidden)
	require.Equal(t, "velero.io/pod", builtin[0].name, "the arguments stay as they are")
}
