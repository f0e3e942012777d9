package collect

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost"
	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost/selfplugin"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/pkg/plugin"
	"github.com/holdfast-io/holdfast/pkg/plugin/serve"
)

func init() {
	if os.Getenv("VELERO_PLUGIN") != "" {
		os.Exit(servePlugins())
	}
}

// servePlugins is the test binary as a plugin made with the SDK.
func servePlugins() int {
	registry := (&plugin.Registry{}).
		BackupItemAction("hostile.io/x", []string{"configmaps"}, func(env plugin.Env) (plugin.BackupItemAction, error) { return hostile{env: env}, nil }).
		ItemBlockAction("hostile.io/block", []string{"configmaps"}, func(plugin.Env) (plugin.ItemBlockAction, error) { return hostileBlock{}, nil })
	if err := serve.Run(registry); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// hostile does what the name of the object is.
type hostile struct{ env plugin.Env }

// inA selects the objects of both hostile actions.
var inA = plugin.Selector{IncludedNamespaces: []string{"a"}}

func (hostile) AppliesTo(context.Context) (plugin.Selector, error) { return inA, nil }

func (h hostile) Execute(_ context.Context, in *plugin.BackupInput) (*plugin.BackupOutput, error) {
	item := in.Item
	item.SetAnnotations(map[string]string{"trace": in.Item.GetName()})
	out := plugin.NewBackupOutput(item)
	configmap := func(name string) plugin.ResourceIdentifier {
		return plugin.ResourceIdentifier{Resource: "configmaps", Namespace: "a", Name: name}
	}
	switch item.GetName() {
	case "cm-010":
		os.Exit(3) // it dies
	case "cm-020":
		select {}
	case "cm-030":
		item.SetName("other")
	case "cm-040":
		return nil, nil
	case "cm-050":
		out.WithAdditionalItems(configmap("cm-052"))
	case "cm-052":
		out.WithAdditionalItems(configmap("cm-050"))
	case "cm-060":
		out.WithAdditionalItems(plugin.ResourceIdentifier{Group: "example.com", Resource: "unicorns", Name: "x"})
	case "cm-070":
		panic("broken")
	case "cm-080":
		item.SetAnnotations(map[string]string{"trace": strings.Repeat("x", 9<<20)})
	case "cm-090":
		h.env.Log.Error("something is wrong")
	}
	return out, nil
}

type hostileBlock struct{}

func (hostileBlock) AppliesTo(context.Context) (plugin.Selector, error) { return inA, nil }

func (hostileBlock) GetRelatedItems(_ context.Context, in *plugin.BackupInput) ([]plugin.ResourceIdentifier, error) {
	if in.Item.GetName() == "cm-100" {
		os.Exit(3) // it dies
	}
	return []plugin.ResourceIdentifier{{Resource: "configmaps", Namespace: "a", Name: "cm-000"}}, nil
}

// withPlugins gives the setup a session with the hostile plugin.
func (s *setup) withPlugins(t *testing.T, host *pluginhost.Host) *setup {
	t.Helper()
	lines := &Lines{}
	session := host.Open(t.Context(), pluginhost.JobLog(0, lines.Add))
	t.Cleanup(session.Close)
	s.job.Actions = Actions{Items: session.BackupItems(), Blocks: session.ItemBlocks(), Lines: lines, Close: session.Close,
		IsProcessCrash: func(err error) bool { return errors.Is(err, pluginhost.ErrCrashed) }}
	return s
}

func hostileHost(t *testing.T) *pluginhost.Host {
	t.Helper()
	dir := selfplugin.Directory(t, "hostile")
	s := newSetup(t, newEstateServer(), velerov1.BackupSpec{})
	host, err := pluginhost.New(t.Context(), pluginhost.Config{Dir: dir, Namespace: "velero", Environ: os.Environ(), Log: s.cfg.Log,
		Clock: clock.RealClock{}, Limits: pluginhost.Limits{Execute: 15 * time.Second}})
	require.NoError(t, err)
	require.Empty(t, host.Failures())
	return host
}

func TestAHostilePluginCostsItsObjects(t *testing.T) {
	t.Parallel()
	for _, workers := range []int{1, 4} {
		t.Run(fmt.Sprint(workers), func(t *testing.T) {
			t.Parallel()
			s := newSetup(t, newEstateServer(), velerov1.BackupSpec{}, "a").withPlugins(t, hostileHost(t))
			s.cfg.BlockWorkers = workers
			requireCosts(t, s)
		})
	}
}

// requireCosts checks that each misdeed costs the object that it was about.
func requireCosts(t *testing.T, s *setup) {
	t.Helper()
	res, got := s.runJob(t)
	costs := map[string]string{
		"cm-010": "plugin hostile.io/x: Execute of ConfigMap a/cm-010: plugin process died",
		"cm-020": "plugin hostile.io/x: Execute of ConfigMap a/cm-020: ", // it hangs, unless the death of another ends it
		"cm-030": "plugin hostile.io/x: Execute of ConfigMap a/cm-030: ",
		"cm-060": "action hostile.io/x: Execute: additional item unicorns.example.com x: the cluster does not serve this resource",
		"cm-070": "plugin hostile.io/x: Execute of ConfigMap a/cm-070: ",
		"cm-080": "plugin hostile.io/x: Execute of ConfigMap a/cm-080: message too large",
	}
	bodies := s.storedBodies(t, res)
	var notes []string
	for _, e := range got.notes {
		if e.Level == joblog.Error {
			notes = append(notes, e.Name+": "+e.Message+": "+e.Err)
		}
	}
	text := strings.Join(notes, "\n")
	for name, cost := range costs {
		require.Contains(t, text, name+": an action failed: the object is not backed up: "+cost)
		require.NotContains(t, bodies, configMap(name))
	}
	require.Contains(t, text, "plugin hostile.io/block: GetRelatedItems of ConfigMap a/cm-100: plugin process died")
	require.Contains(t, text, "something is wrong", "what a plugin logs counts")
	require.Len(t, notes, res.Errors)
	require.Equal(t, 150-len(costs), got.countOf("configmaps"), "everything else is complete")
	for path, body := range bodies {
		name := strings.TrimSuffix(filepath.Base(path), ".json")
		if strings.HasPrefix(name, "cm-") && name != "cm-040" {
			require.Equal(t, name, traceOf(body), path)
		}
	}
	require.Nil(t, traceOf(bodies[configMap("cm-040")]), "no output changes nothing")
}

// A takeover in the middle of the actions stores what an undisturbed run does.
func TestTakeoverWhilePluginsWork(t *testing.T) {
	host := hostileHost(t)
	base := newSetup(t, newEstateServer(), fiftyConfigMaps(), "a")
	base.cfg.PartItems = 4
	first := base.firstOwner(t).withPlugins(t, host)
	res, got := first.runJob(t)
	want := slices.Clone(got.items)
	for _, n := range []int{30, 40, 50} {
		s := base.firstOwner(t).withPlugins(t, host)
		died := dieAt(s.store, n)
		_, err := Run(t.Context(), s.cfg, s.job)
		require.ErrorIs(t, err, errDead)
		require.True(t, died())
		s.job.Actions.Close()
		s.store.Inject(nil)
		next := s.nextOwner(t, 2).withPlugins(t, host)
		again, got := next.runJob(t)
		require.Equal(t, want, got.items, "dead at write %d", n)
		require.Equal(t, res.Items, again.Items)
	}
}
