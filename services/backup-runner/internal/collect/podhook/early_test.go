package podhook_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/pkg/kube/podexec"
	"github.com/holdfast-io/holdfast/pkg/spec/hook"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/history"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/podhook"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/itemset"
)

// bed runs hooks and records them.
type bed struct {
	// at, if not nil, is called before a command runs and before a hook is recorded, with its name.
	at func(step string)

	mu       sync.Mutex
	ran      []string
	outcomes []checkpoint.HookOutcome
	retries  int
}

func (b *bed) Run(_ context.Context, cmd *podexec.Command) (podexec.Output, error) {
	if b.at != nil {
		b.at("run " + cmd.Args[0])
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ran = append(b.ran, cmd.Args[0])
	return podexec.Output{}, nil
}

func (b *bed) countCommands() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.ran)
}

func (b *bed) Hook(_ context.Context, opens *checkpoint.HookedPod, runs *checkpoint.HookIntent) error {
	if opens == nil && b.at != nil {
		b.at("record " + runs.Phase)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if runs != nil && runs.Retry {
		b.retries++
	}
	return nil
}

func (b *bed) EndHook(out *checkpoint.HookOutcome) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.outcomes = append(b.outcomes, *out)
}

func (b *bed) FlushOutcomes(context.Context) error { return nil }

func (b *bed) hookConfig(t *testing.T, past *history.Hooks) podhook.Config {
	t.Helper()
	spec := &velerov1.BackupHooks{Resources: []velerov1.BackupResourceHookSpec{{Name: "s",
		PreHooks:  []velerov1.BackupResourceHook{{Exec: &velerov1.ExecHook{Command: []string{"flush"}}}, {Exec: &velerov1.ExecHook{Command: []string{"freeze"}}}},
		PostHooks: []velerov1.BackupResourceHook{{Exec: &velerov1.ExecHook{Command: []string{"thaw"}}}, {Exec: &velerov1.ExecHook{Command: []string{"note"}}}},
	}}}
	set, err := hook.NewBackup(spec, nil)
	require.NoError(t, err)
	return podhook.Config{Set: set, Exec: b, Intents: b, Past: past, Opened: &podhook.Opened{}, Log: slog.New(slog.DiscardHandler)}
}

func newPod(t *testing.T) *itemset.SpooledItem { return podOf(t, "p") }

func podOf(t *testing.T, name string) *itemset.SpooledItem {
	t.Helper()
	raw, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"namespace": "a", "name": name},
		"spec": map[string]any{"containers": []any{map[string]any{"name": "main"}}}, "status": map[string]any{"phase": "Running"}})
	require.NoError(t, err)
	return &itemset.SpooledItem{Version: "v1", Kind: "Pod", Resource: "pods", Namespace: "a", Name: name, Raw: raw}
}

func countFailures(p *podhook.Pod) (n int) {
	for _, e := range p.Entries() {
		if e.Level == joblog.Error {
			n++
		}
	}
	return n
}

// Whenever post hooks run early each runs once, no pre hook follows them, and the Pod has an error
// unless its backup was done.
func TestPostHooksThatRunEarly(t *testing.T) {
	for step, want := range map[string]struct {
		ran    []string
		errors int
	}{
		"run flush":    {[]string{"flush", "thaw", "note"}, 1}, // it is waited for
		"record pre":   {[]string{"flush", "thaw", "note"}, 1},
		"between":      {[]string{"flush", "freeze", "thaw", "note"}, 1},
		"record post":  {[]string{"flush", "freeze", "thaw", "note"}, 0},
		"run thaw":     {[]string{"flush", "freeze", "thaw", "note"}, 0},
		"after":        {[]string{"flush", "freeze", "thaw", "note"}, 0},
		"before first": {[]string{"flush", "freeze", "thaw", "note"}, 0},
	} {
		t.Run(step, func(t *testing.T) {
			b := &bed{}
			cfg := b.hookConfig(t, &history.Hooks{})
			announced := 0
			var once sync.Once
			var beside sync.WaitGroup
			early := func() {
				podhook.RunEarly(t.Context(), cfg, func(context.Context) { announced++ })
			}
			b.at = func(at string) {
				if at != step || at == "record pre" && b.countCommands() == 0 { // the first of two
					return
				}
				once.Do(func() {
					if at == "run flush" || at == "run thaw" {
						beside.Go(early)
						return
					}
					early()
				})
			}
			if step == "before first" {
				early()
			}
			r := podhook.New(cfg)
			p := r.Of(newPod(t))
			require.NoError(t, r.Pre(t.Context(), p))
			if step == "run flush" {
				beside.Wait()
			}
			if step == "between" {
				early()
			}
			require.NoError(t, r.Post(t.Context(), p))
			beside.Wait()
			if step == "after" {
				early()
			}
			if step != "run flush" { // it may come after the second pre hook
				require.Equal(t, want.ran, b.ran)
			}
			require.Equal(t, want.errors, countFailures(p))
			require.LessOrEqual(t, announced, 1)
			require.Empty(t, cfg.Opened.Pods())
			ended := map[checkpoint.Hook]bool{}
			for _, out := range b.outcomes {
				require.False(t, ended[out.Hook], "recorded once")
				ended[out.Hook] = true
			}
		})
	}
}

// What an earlier holder left may have run without a record: it is recorded as a retry, also where it
// ran early here. Its backup is done, so that it has no error.
func TestPostHooksOfAnEarlierHolderAreRetries(t *testing.T) {
	for _, early := range []bool{false, true} {
		b := &bed{}
		past := &history.Hooks{}
		left := checkpoint.HookedPod{Object: checkpoint.Object{Kind: "Pod", Namespace: "a", Name: "p"}, Pre: 1,
			Post: []checkpoint.HookCommand{{Container: "main", Command: []string{"thaw"}, Timeout: time.Minute}}}
		past.Add(&checkpoint.Record{Hooked: []checkpoint.HookedPod{left}})
		cfg := b.hookConfig(t, past)
		r := podhook.New(cfg)
		r.Resume()
		if early {
			podhook.RunEarly(t.Context(), cfg, func(context.Context) {})
		}
		p := r.Owed(&left)
		require.NoError(t, r.Post(t.Context(), p))
		require.Equal(t, []string{"thaw"}, b.ran)
		require.Equal(t, 1, b.retries)
		require.Zero(t, countFailures(p))
	}
}

// A Pod whose post hooks may have run before a takeover is not taken for one between its hooks.
func TestAPodWhosePostHooksRanBeforeATakeoverHasAnError(t *testing.T) {
	b := &bed{}
	past := &history.Hooks{}
	past.Add(&checkpoint.Record{Hooked: []checkpoint.HookedPod{{Object: checkpoint.Object{Kind: "Pod", Namespace: "a", Name: "p"}, Pre: 2}}})
	cfg := b.hookConfig(t, past)
	cfg.RanEarly = true
	r := podhook.New(cfg)
	r.Resume()
	p := r.Of(newPod(t))
	require.NoError(t, r.Pre(t.Context(), p))
	require.Empty(t, b.ran)
	require.NoError(t, r.Post(t.Context(), p))
	require.Equal(t, []string{"thaw", "note"}, b.ran)
	require.Equal(t, 2, b.retries)
	require.Equal(t, 1, countFailures(p))
}
