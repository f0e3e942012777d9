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

// keyed are actions that begin operations with a key.
type (
	keyedBackup  struct{ action.BackupItem }
	keyedRestore struct{ action.RestoreItem }
)

func (keyedBackup) Name() string { return "a.io/a" }

func (keyedBackup) Start(context.Context, *action.Object, *action.Backup, string) (action.BackupResult, error) {
	return action.BackupResult{}, nil
}

func (keyedRestore) Name() string { return "a.io/a" }

func (keyedRestore) Start(context.Context, *action.Object, *action.Object, *action.Restore, string) (action.RestoreResult, error) {
	return action.RestoreResult{}, nil
}

func TestActionsThatBeginOperationsWithAKeyRunLast(t *testing.T) {
	t.Parallel()
	merged, _ := action.Merge([]action.Action{labelled{"velero.io/pod", "builtin"}}, []action.Action{
		keyedRestore{}, keyedBackup{}, labelled{"z.io/a", "plugin"}, labelled{"b.io/a", "plugin"},
	})
	require.Equal(t, []action.Action{
		labelled{"b.io/a", "plugin"}, labelled{"velero.io/pod", "builtin"}, labelled{"z.io/a", "plugin"}, keyedRestore{}, keyedBackup{},
	}, merged)
}
