package plugin_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/holdfast-io/holdfast/pkg/plugin"
)

func noAction(plugin.Env) (plugin.BackupItemAction, error) { return nil, nil }

func TestRegistryNamesWhatIsWrong(t *testing.T) {
	for name, tc := range map[string]struct {
		registry *plugin.Registry
		want     string
	}{
		"nothing":             {&plugin.Registry{}, "no plugin"},
		"no domain":           {(&plugin.Registry{}).BackupItemAction("quiesce", []string{"*"}, noAction), `register BackupItemAction "quiesce": name:`},
		"no name":             {(&plugin.Registry{}).BackupItemAction("a.io/", []string{"*"}, noAction), "name:"},
		"two slashes":         {(&plugin.Registry{}).BackupItemAction("a.io/b/c", []string{"*"}, noAction), "name:"},
		"no such domain":      {(&plugin.Registry{}).BackupItemAction("A.io/b", []string{"*"}, noAction), "name:"},
		"twice for Velero":    {(&plugin.Registry{}).BackupItemAction("a.io/b", []string{"*"}, noAction).AsyncBackupItemAction("a.io/b", []string{"*"}, noAsync, plugin.OutOfProcess()), "Velero would call two actions by it"},
		"for Velero twice":    {(&plugin.Registry{}).AsyncBackupItemAction("a.io/b", []string{"*"}, noAsync, plugin.OutOfProcess()).BackupItemAction("a.io/b", []string{"*"}, noAction), "Velero would call two actions by it"},
		"twice":               {(&plugin.Registry{}).BackupItemAction("a.io/b", []string{"*"}, noAction).BackupItemAction("a.io/b", []string{"*"}, noAction), "registered twice"},
		"no touches":          {(&plugin.Registry{}).BackupItemAction("a.io/b", nil, noAction), "touches:"},
		"star and more":       {(&plugin.Registry{}).BackupItemAction("a.io/b", []string{"*", "pods"}, noAction), `touches: "*"`},
		"a kind":              {(&plugin.Registry{}).BackupItemAction("a.io/b", []string{"Pod"}, noAction), `touches: "Pod"`},
		"no constructor":      {(&plugin.Registry{}).BackupItemAction("a.io/b", []string{"*"}, nil), "constructor:"},
		"no store either":     {(&plugin.Registry{}).ObjectStore("a.io/b", nil), "constructor:"},
		"no restore, no name": {(&plugin.Registry{}).RestoreItemAction("", []string{"*"}, nil), "RestoreItemAction"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := tc.registry.Plugins()
			require.ErrorContains(t, err, tc.want)
		})
	}
}

func TestJobTellsWhatItIs(t *testing.T) {
	job, err := plugin.NewJob([]byte(`{"metadata":{"name":"b","namespace":"velero","uid":"u","labels":{"l":"1"},"annotations":{"a":""}},"spec":{"storageLocation":"default"}}`))
	require.NoError(t, err)
	require.Equal(t, []string{"b", "velero", "u"}, []string{job.Name(), job.Namespace(), job.UID()})
	value, ok := job.Label("l")
	require.True(t, ok)
	require.Equal(t, "1", value)
	_, ok = job.Annotation("a")
	require.True(t, ok)
	_, ok = job.Annotation("b")
	require.False(t, ok)
	var spec struct {
		Spec struct{ StorageLocation string }
	}
	require.NoError(t, job.Decode(&spec))
	require.Equal(t, "default", spec.Spec.StorageLocation)
	for _, text := range []string{"", "null", "[]", `"x"`, `{"metadata":1}`, "{"} {
		_, err := plugin.NewJob([]byte(text))
		require.ErrorContains(t, err, "no Backup or Restore", text)
	}
}

func TestConfigSelectorFindsThePluginsConfigMap(t *testing.T) {
	selector, err := labels.Parse(plugin.ConfigSelector(plugin.KindRestoreItemAction, "a.io/x"))
	require.NoError(t, err)
	require.True(t, selector.Matches(labels.Set{"velero.io/plugin-config": "", "a.io/x": "RestoreItemAction"}))
	require.False(t, selector.Matches(labels.Set{"velero.io/plugin-config": "", "a.io/x": "BackupItemAction"}))
	require.False(t, selector.Matches(labels.Set{"a.io/x": "RestoreItemAction"}))
}

func noAsync(plugin.Env) (plugin.AsyncBackupItemAction, error) { return nil, nil }
