package wireserver

import (
	"context"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-io/holdfast/pkg/plugin"
	"github.com/holdfast-io/holdfast/pkg/plugin/wire/velero"
)

type touching struct{}

func (touching) AppliesTo(context.Context) (plugin.Selector, error) {
	return plugin.Selector{Expression: `!has(item.skip)`}, nil
}

func (touching) Execute(_ context.Context, in *plugin.BackupInput) (*plugin.BackupOutput, error) {
	_ = in.Backup.Name() + in.Item.GetName()
	return plugin.NewBackupOutput(in.Item).WithMustInclude().WithoutBackup(), nil
}

// Whatever a server sends, the answer is an object or an error that names the field.
func FuzzExecute(f *testing.F) {
	f.Add([]byte(`{"metadata":{"name":"a","annotations":{"x":"y"}}}`), []byte(`{"metadata":{"name":"b"}}`))
	f.Add([]byte(`{"metadata":7}`), []byte(`{}`))
	f.Add([]byte(`{"metadata":{"annotations":[1]},"x":1e400}`), []byte(`null`))
	f.Add([]byte(`{"metadata":{"annotations":null},"skip":1}`), []byte(``))
	registrations, err := (&plugin.Registry{}).BackupItemAction("a.io/x", []string{"*"}, func(plugin.Env) (plugin.BackupItemAction, error) { return touching{}, nil }).Plugins()
	if err != nil {
		f.Fatal(err)
	}
	server := backupActions{Server: New(registrations, Options{Log: slog.New(slog.DiscardHandler)})}
	f.Fuzz(func(t *testing.T, item, backup []byte) {
		resp, err := guardUnary(t.Context(), &velero.ExecuteRequest{Plugin: "a.io/x", Item: item, Backup: backup}, nil, func(ctx context.Context, req any) (any, error) {
			return server.Execute(ctx, req.(*velero.ExecuteRequest))
		})
		if err != nil {
			require.Equal(t, codes.InvalidArgument, status.Code(err), "%v", err)
			return
		}
		_, err = decodeItem("answer", resp.(*velero.ExecuteResponse).GetItem())
		require.NoError(t, err)
	})
}
