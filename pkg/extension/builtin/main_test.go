package builtin_test

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/extension/builtin"
)

// cluster is what the actions may ask, by resource; ConfigMaps are its configs.
type cluster struct {
	mu      sync.Mutex
	objects map[string][]string // JSON by resource.group
	configs []labelled
	classes []string // StorageClasses that exist
	fail    []error  // for the next calls, one each
	calls   []string
}

type labelled struct {
	labels labels.Set
	builtin.Config
}

// recordCall notes a call and takes the next failure.
func (c *cluster) recordCall(what string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, what)
	if len(c.fail) == 0 {
		return nil
	}
	err := c.fail[0]
	c.fail = c.fail[1:]
	return err
}

func (c *cluster) Each(_ context.Context, gr schema.GroupResource, namespace, selector string, visit func(*action.Object) error) error {
	if err := c.recordCall("list " + gr.String() + " " + namespace); err != nil {
		return err
	}
	wanted, err := labels.Parse(selector)
	if err != nil {
		return err
	}
	for _, raw := range c.objects[gr.String()] {
		var head metav1.PartialObjectMetadata
		if err := json.Unmarshal([]byte(raw), &head); err != nil {
			return err
		}
		if namespace != "" && head.Namespace != namespace || !wanted.Matches(labels.Set(head.Labels)) {
			continue
		}
		if err := visit(action.FromJSON([]byte(raw))); err != nil {
			return err
		}
	}
	return nil
}

func (c *cluster) StorageClassExists(_ context.Context, name string) (bool, error) {
	return slices.Contains(c.classes, name), c.recordCall("class " + name)
}

func (c *cluster) Configs(_ context.Context, selector string) ([]builtin.Config, error) {
	if err := c.recordCall("configs " + selector); err != nil {
		return nil, err
	}
	wanted, err := labels.Parse(selector)
	if err != nil {
		return nil, err
	}
	var out []builtin.Config
	for _, config := range c.configs {
		if wanted.Matches(config.labels) {
			out = append(out, config.Config)
		}
	}
	return out, nil
}

// addConfigMap adds the ConfigMap of an action.
func (c *cluster) addConfigMap(name, config string, data map[string]string) {
	c.configs = append(c.configs, labelled{
		labels.Set{"velero.io/plugin-config": "", name: "RestoreItemAction"}, builtin.Config{Name: config, Data: data},
	})
}

func backupJob(t testing.TB, change ...func(*velerov1.Backup)) *action.Backup {
	t.Helper()
	b := &velerov1.Backup{}
	b.Name = "nightly"
	for _, f := range change {
		f(b)
	}
	job, err := action.NewBackup(b)
	require.NoError(t, err)
	return job
}

func restoreJob(t testing.TB) *action.Restore {
	t.Helper()
	job, err := action.NewRestore(&velerov1.Restore{})
	require.NoError(t, err)
	return job
}

// byName returns the action of that name.
func byName[A action.Action](t testing.TB, actions []A, name string) A {
	t.Helper()
	i := slices.IndexFunc(actions, func(a A) bool { return a.Name() == name })
	require.GreaterOrEqual(t, i, 0, "no action %s", name)
	return actions[i]
}

func itemNames(items []action.Item) []string {
	out := []string{}
	for _, item := range items {
		out = append(out, item.String())
	}
	return out
}

func jsonOf(t testing.TB, o *action.Object) string {
	t.Helper()
	raw, err := o.JSON()
	require.NoError(t, err)
	return string(raw)
}
