package plugintest_test

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-io/holdfast/pkg/plugin"
	"github.com/holdfast-io/holdfast/pkg/plugin/plugintest"
	pluginv1 "github.com/holdfast-io/holdfast/pkg/plugin/wire/holdfast/plugin/v1"
	"github.com/holdfast-io/holdfast/pkg/plugin/wire/velero"
)

// Velero refuses a binary whose listing names a kind it does not know.
func TestListingNamesOnlyVelerosKinds(t *testing.T) {
	process := startMovers(t)
	resp, err := velero.NewPluginListerClient(process.Conn()).ListPlugins(t.Context(), &velero.Empty{})
	require.NoError(t, err)
	require.Empty(t, resp.GetPlugins())

	described, err := process.Describe(t.Context())
	require.NoError(t, err)
	require.Len(t, described.GetPlugins(), 2)
	require.Equal(t, "a.io/move", described.GetPlugins()[0].GetName())
	require.Equal(t, pluginv1.Kind_KIND_ASYNC_BACKUP_ITEM_ACTION, described.GetPlugins()[0].GetKind())
	require.Equal(t, []string{"persistentvolumeclaims"}, described.GetPlugins()[1].GetTouches())

	again, err := process.Describe(t.Context())
	require.NoError(t, err)
	require.Equal(t, described.GetProcessId(), again.GetProcessId())
	other, err := startMovers(t).Describe(t.Context())
	require.NoError(t, err)
	require.NotEqual(t, described.GetProcessId(), other.GetProcessId())
}

func TestAppliesToIsForActions(t *testing.T) {
	process, _ := startStores(t)
	service := pluginv1.NewPluginServiceClient(process.Conn())
	for want, req := range map[string]*pluginv1.AppliesToRequest{
		"kind: ObjectStore is no action":  {Kind: pluginv1.Kind_KIND_OBJECT_STORE, Plugin: "a.io/store"},
		"kind: 99 is none":                {Kind: 99},
		`no DeleteItemAction is called "`: {Kind: pluginv1.Kind_KIND_DELETE_ITEM_ACTION, Plugin: "a.io/store"},
	} {
		_, err := service.AppliesTo(t.Context(), req)
		require.ErrorContains(t, err, want)
	}
}

func TestConstructorsRunOnceTheySucceed(t *testing.T) {
	var attempts atomic.Int32
	process := plugintest.Start(t, (&plugin.Registry{}).ObjectStore("a.io/store", func(env plugin.Env) (plugin.ObjectStore, error) {
		require.Equal(t, "a.io/store", env.Name)
		env.Log.Debug("made")
		switch attempts.Add(1) {
		case 1:
			return nil, errors.New("not yet")
		case 2:
			return nil, nil
		}
		return &memory{}, nil
	}))
	store := process.ObjectStore("a.io/store")
	_, err := store.ObjectExists(t.Context(), "b", "k")
	require.ErrorContains(t, err, `ObjectStore "a.io/store" cannot be made: not yet`)
	_, err = store.ObjectExists(t.Context(), "b", "k")
	require.ErrorContains(t, err, "its constructor returned nil")
	require.Equal(t, codes.Unknown, status.Code(err))
	for range 3 {
		_, err = store.ObjectExists(t.Context(), "b", "k")
		require.NoError(t, err)
	}
	require.Equal(t, int32(3), attempts.Load())
}
