package plugintest_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/plugin"
	"github.com/holdfast-io/holdfast/pkg/plugin/plugintest"
	"github.com/holdfast-io/holdfast/pkg/plugin/wire/velero"
)

// BenchmarkExecute is the cost of one object of 4 KiB beyond the action itself: socket, decoding,
// encoding, expression.
func BenchmarkExecute(b *testing.B) {
	action := backupFunc{funcs: funcs{selector: plugin.Selector{Expression: `has(item.data)`}}, run: func(_ context.Context, in *plugin.BackupInput) (*plugin.BackupOutput, error) {
		return plugin.NewBackupOutput(in.Item), nil
	}}
	process := plugintest.Start(b, (&plugin.Registry{}).BackupItemAction("a.io/x", []string{"*"}, constructorOf[plugin.BackupItemAction](action)))
	service := velero.NewBackupItemActionClient(process.Conn())
	req := &velero.ExecuteRequest{
		Plugin: "a.io/x", Backup: []byte(`{"metadata":{"name":"b"}}`),
		Item: []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{` + strings.Repeat(`"key":"value",`, 290) + `"x":"y"}}`),
	}
	b.ReportAllocs()
	for b.Loop() {
		_, err := service.Execute(b.Context(), req)
		require.NoError(b, err)
	}
}
