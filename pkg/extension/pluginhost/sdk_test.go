package pluginhost_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost"
	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost/selfplugin"
	"github.com/holdfast-io/holdfast/pkg/plugin"
	"github.com/holdfast-io/holdfast/pkg/plugin/serve"
)

// serveWithSDK is the test binary as a plugin made with Holdfast's own SDK.
func serveWithSDK() {
	registry := &plugin.Registry{}
	registry.BackupItemAction("sdk.io/annotate", []string{"pods"}, func(plugin.Env) (plugin.BackupItemAction, error) { return annotate{}, nil })
	registry.RestoreItemAction("sdk.io/skip", []string{"*"}, func(plugin.Env) (plugin.RestoreItemAction, error) { return skip{}, nil })
	if err := serve.Run(registry); err != nil {
		fmt.Fprintln(stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

type annotate struct{}

func (annotate) AppliesTo(context.Context) (plugin.Selector, error) {
	return plugin.Selector{LabelSelector: "app", Expression: "has(item.spec.nodeName)"}, nil
}

func (annotate) Execute(_ context.Context, in *plugin.BackupInput) (*plugin.BackupOutput, error) {
	in.Item.SetAnnotations(map[string]string{"sdk.io/seen": "yes"})
	return plugin.NewBackupOutput(in.Item), nil
}

type skip struct {
	plugin.Everything
	plugin.ItemsReady
}

func (skip) Execute(_ context.Context, in *plugin.RestoreInput) (*plugin.RestoreOutput, error) {
	return plugin.NewRestoreOutput(in.Item).WithoutRestore(), nil
}

var (
	pods        = schema.GroupResource{Resource: "pods"}
	deployments = schema.GroupResource{Group: "apps", Resource: "deployments"}
)

// nothingKnown is a cluster whose discovery fails: names stay as they are.
type nothingKnown struct{}

func (nothingKnown) Resolve(string) (gr schema.GroupResource, namespaced, ok bool) {
	return gr, false, false
}

func TestPluginsOfTheSDKSayMore(t *testing.T) {
	h, err := pluginhost.New(t.Context(), shortLimitsConfig(selfplugin.Directory(t, "sdk")))
	require.NoError(t, err)
	require.Empty(t, h.Failures())
	require.Len(t, h.Plugins(), 2)
	require.Equal(t, []string{"pods"}, h.Plugins()[0].Touches)
	s := openSession(t, h)

	bound, errs := action.Bind(t.Context(), s.BackupItems(), nothingKnown{})
	require.Empty(t, errs)
	require.Len(t, bound, 1)
	b := bound[0]
	require.True(t, b.Resource(pods))
	require.False(t, b.Resource(deployments), "beyond what it may touch")
	pending, scheduled := newPodObject(), action.FromJSON([]byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"a","name":"b"},"spec":{"nodeName":"n"}}`))
	wants, err := b.Accepts(t.Context(), pending)
	require.NoError(t, err)
	require.False(t, wants)
	wants, err = b.Accepts(t.Context(), scheduled)
	require.NoError(t, err)
	require.True(t, wants)
	result, err := b.Action.Execute(t.Context(), scheduled, theBackup(t))
	require.NoError(t, err)
	require.Equal(t, "yes", objectAnnotations(t, result.Object)["sdk.io/seen"])

	skips := actionNamed(t, s.RestoreItems(), "sdk.io/skip")
	require.Implements(t, (*action.Readiness)(nil), skips)
	require.NotImplements(t, (*action.RestoreOperations)(nil), skips, "those of the SDK are another kind")
	restored, err := skips.Execute(t.Context(), newPodObject(), newPodObject(), theRestore(t))
	require.NoError(t, err)
	require.True(t, restored.Skip)
}

// A binary that has none of the SDK's kinds is called in Velero's protocol, and lists none of them.
func TestAPluginIsUsedUnderItsAsynchronousKindOnceThereIsAProcessForIt(t *testing.T) {
	h, err := pluginhost.New(t.Context(), shortLimitsConfig(selfplugin.Directory(t, "twins", "unlike-twins")))
	require.NoError(t, err)
	said := map[string]int{}
	for _, f := range h.Failures() {
		require.ErrorIs(t, f, pluginhost.ErrMalformed)
		_, text, _ := strings.Cut(f.Err.Error(), ": ")
		text, _, _ = strings.Cut(text, " by ")
		said[filepath.Base(f.Path)+": "+text]++
	}
	require.Equal(t, map[string]int{
		`twins: plugin "twin.io/listed" has the unknown kind "AsyncBackupItemAction"`:        1,
		`unlike-twins: plugin "twin.io/listed" has the unknown kind "AsyncBackupItemAction"`: 1,
		"unlike-twins: BackupItemActionV2 twin.io/mover is registered":                       1,
		"unlike-twins: RestoreItemActionV2 twin.io/mover is registered":                      1,
		"unlike-twins: AsyncBackupItemAction twin.io/mover is registered":                    1,
		"unlike-twins: AsyncRestoreItemAction twin.io/mover is registered":                   1,
	}, said)
	without := openSession(t, h)
	openOperations(t, h)
	with := openSession(t, h)
	for s, starts := range map[*pluginhost.Session]bool{without: false, with: true} {
		require.Len(t, s.BackupItems(), 1)
		_, is := s.BackupItems()[0].(action.BackupStarter)
		require.Equal(t, starts, is)
		require.Len(t, s.RestoreItems(), 1)
		_, is = s.RestoreItems()[0].(action.RestoreStarter)
		require.Equal(t, starts, is)
	}
}

func TestAJobSaysThatAsynchronousActionsAreNotCalled(t *testing.T) {
	h, err := pluginhost.New(t.Context(), shortLimitsConfig(selfplugin.Directory(t, "starters")))
	require.NoError(t, err)
	require.Empty(t, h.Failures())
	s := openSession(t, h)
	require.Equal(t, []string{"z.io/sync"}, actionNames(s.BackupItems()))
	require.Empty(t, s.RestoreItems())
	missing := s.MissingFromBackups()
	require.Len(t, missing, 2)
	require.ErrorIs(t, missing[0], pluginhost.ErrUnserved)
	require.EqualError(t, missing[0].Err, "this version calls no plugin of this kind: AsyncBackupItemAction a.io/inside")
	missing = s.MissingFromRestores()
	require.Len(t, missing, 1)
	require.EqualError(t, missing[0].Err, "this version calls no plugin of this kind: AsyncRestoreItemAction a.io/restores")

	openOperations(t, h)
	s = openSession(t, h)
	require.Equal(t, []string{"z.io/sync", "a.io/inside", "a.io/outside"}, actionNames(s.BackupItems()))
	require.Equal(t, []string{"a.io/restores"}, actionNames(s.RestoreItems()))
	require.Empty(t, s.MissingFromBackups())
	require.Empty(t, s.MissingFromRestores())
}

func TestWhatOneRegistrationSaysWrongCostsItAlone(t *testing.T) {
	h, err := pluginhost.New(t.Context(), shortLimitsConfig(selfplugin.Directory(t, "misdescribed")))
	require.NoError(t, err)
	var said []string
	for _, f := range h.Failures() {
		require.ErrorIs(t, f, pluginhost.ErrMalformed)
		said = append(said, f.Err.Error())
	}
	require.Equal(t, []string{
		"malformed answer: Describe: plugins[0]: kind: unknown value 99",
		`malformed answer: Describe: plugins[2]: DeleteItemAction "described.io/secret" is missing in the list of plugins`,
	}, said)
	require.Len(t, h.Plugins(), 2)
	require.Equal(t, []string{"pods"}, h.Plugins()[0].Touches)
	require.Equal(t, pluginhost.KindAsyncBackupItemAction, h.Plugins()[1].Kind)
}
