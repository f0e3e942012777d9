package collect

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/archive/part"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
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

// storedBodies returns the stored objects by their un-versioned path.
func (s *setup) storedBodies(t *testing.T, res Result) map[string]map[string]any {
	t.Helper()
	out := map[string]map[string]any{}
	err := checkpoint.Each(t.Context(), s.store, "b1", "uid-1", res.Checkpoints, func(_ string, rec *checkpoint.Record) error {
		if rec.Part.Key == "" {
			return nil
		}
		data, _ := s.store.Bytes(rec.Part.Key)
		zr, err := gzip.NewReader(bytes.NewReader(data))
		require.NoError(t, err)
		for tr := tar.NewReader(zr); ; {
			h, err := tr.Next()
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				return nil
			}
			require.NoError(t, err)
			if strings.Contains(h.Name, "-preferredversion/") {
				continue
			}
			require.NotContains(t, out, h.Name, "stored once")
			var body map[string]any
			require.NoError(t, json.NewDecoder(tr).Decode(&body))
			out[h.Name] = body
		}
	})
	require.NoError(t, err)
	return out
}

// entriesOf returns the manifest's entries by path, those of failed objects by key.
func (s *setup) entriesOf(t *testing.T, res Result) (stored map[string]manifest.Item, failed []string) {
	t.Helper()
	stored = map[string]manifest.Item{}
	err := checkpoint.Each(t.Context(), s.store, "b1", "uid-1", res.Checkpoints, func(_ string, rec *checkpoint.Record) error {
		if rec.Part.SidecarKey == "" {
			return nil
		}
		data, _ := s.store.Bytes(rec.Part.SidecarKey)
		r, err := part.OpenSidecar(bytes.NewReader(data))
		require.NoError(t, err)
		for {
			key, value, err := r.Next()
			if errors.Is(err, io.EOF) {
				return nil
			}
			require.NoError(t, err)
			entry, err := part.ParseEntry(key, value)
			require.NoError(t, err)
			if !entry.Stored {
				failed = append(failed, strings.ReplaceAll(string(key), "\x00", " "))
				continue
			}
			var item manifest.Item
			require.NoError(t, json.Unmarshal(slices.Concat([]byte("{"), entry.JSON, []byte("}")), &item))
			stored[item.Path] = item
		}
	})
	require.NoError(t, err)
	slices.Sort(failed)
	return stored, failed
}

func traceOf(body map[string]any) any {
	meta, _ := body["metadata"].(map[string]any)
	annotations, _ := meta["annotations"].(map[string]any)
	return annotations["trace"]
}

func configMap(name string) string { return "resources/configmaps/namespaces/a/" + name + ".json" }
