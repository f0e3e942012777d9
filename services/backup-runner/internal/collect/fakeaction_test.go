package collect

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
)

// fakeAction is a backup item action without a process.
type fakeAction struct {
	name     string
	selector action.Selector
	unbound  error
	do       func(ctx context.Context, id action.Identity, o *action.Object) (action.BackupResult, error)

	mu    sync.Mutex
	calls map[string]int
}

func (f *fakeAction) Name() string { return f.name }

func (f *fakeAction) AppliesTo(context.Context) (action.Selector, error) {
	return f.selector, f.unbound
}

func (f *fakeAction) Execute(ctx context.Context, o *action.Object, b *action.Backup) (action.BackupResult, error) {
	id, err := o.Identity()
	if err != nil {
		return action.BackupResult{}, err
	}
	if b.Backup().Name != "b1" {
		return action.BackupResult{}, errors.New("the wrong backup")
	}
	f.mu.Lock()
	if f.calls == nil {
		f.calls = map[string]int{}
	}
	f.calls[id.String()]++
	f.mu.Unlock()
	r, err := f.do(ctx, id, o)
	if err == nil && r.Object == nil {
		r.Object = o
	}
	return r, err
}

// calledOnceEach returns how often the action was called for objects, and requires that it was once for
// each.
func (f *fakeAction) calledOnceEach(t *testing.T) int {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, n := range f.calls {
		require.Equal(t, 1, n, id)
	}
	return len(f.calls)
}

// tracingAction returns an action that notes that it was there.
func tracingAction(name string, s action.Selector) *fakeAction {
	return &fakeAction{name: name, selector: s, do: func(_ context.Context, _ action.Identity, o *action.Object) (action.BackupResult, error) {
		return annotatedResult(o, "trace", name)
	}}
}

func annotatedResult(o *action.Object, key, value string) (action.BackupResult, error) {
	u, err := o.Copy()
	if err != nil {
		return action.BackupResult{}, err
	}
	a := u.GetAnnotations()
	if a == nil {
		a = map[string]string{}
	}
	a[key] = strings.TrimPrefix(a[key]+" "+value, " ")
	u.SetAnnotations(a)
	return action.BackupResult{Object: action.FromContent(u.Object)}, nil
}

func selectResources(names ...string) action.Selector {
	return action.Selector{IncludedResources: names}
}

// addActions gives the setup actions.
func (s *setup) addActions(items ...action.BackupItem) *setup {
	s.job.Actions.Items = items
	return s
}

// storedBodies returns the stored objects, each of which is stored once, by their un-versioned path.
func (s *setup) storedBodies(t *testing.T, res Result) map[string]map[string]any {
	t.Helper()
	got, out := s.readStored(t, res), map[string]map[string]any{}
	require.Len(t, got.raw, len(got.items), "stored once")
	for path, raw := range got.raw {
		var body map[string]any
		require.NoError(t, json.Unmarshal(raw, &body))
		out[path] = body
	}
	return out
}

func traceOf(body map[string]any) any {
	meta, _ := body["metadata"].(map[string]any)
	annotations, _ := meta["annotations"].(map[string]any)
	return annotations["trace"]
}

func configMap(name string) string { return "resources/configmaps/namespaces/a/" + name + ".json" }
