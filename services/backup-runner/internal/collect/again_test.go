package collect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
)

func pathOf(name string) string { return "/api/v1/namespaces/a/configmaps/" + name }

// postOperation are ConfigMaps that operations named.
func postOperation(n int) (items []operation.Resource, names []string) {
	for i := range n {
		name := fmt.Sprintf("cm-%03d", 2*i)
		items, names = append(items, operation.Resource{Resource: "configmaps", Namespace: "a", Name: name}), append(names, name)
	}
	return items, names
}

// Items that operations named are of one moment: an action that removes or changes one of them does
// so after all were read.
func TestItemsAreReadBeforeAnActionSeesOneAgain(t *testing.T) {
	for name, consistent := range map[string]bool{"at one revision": true, "each at the newest": false} {
		t.Run(name, func(t *testing.T) {
			api := newEstateServer()
			s := newSetup(t, api, fiftyConfigMaps(), "a")
			if !consistent {
				s.job.Cut.Restore(nil)
			}
			s.addActions(&fakeAction{name: "a.io/removes", do: func(_ context.Context, id action.Identity, o *action.Object) (action.BackupResult, error) {
				if id.Name == "cm-000" {
					api.Delete(pathOf("cm-002"))
					api.Change(pathOf("cm-004"), func(o map[string]any) { o["data"] = map[string]any{"k": "later"} })
				}
				return action.BackupResult{Object: o}, nil
			}})
			items, _ := postOperation(3)
			res, err := StoreAgain(t.Context(), s.cfg, s.job, items)
			require.NoError(t, err)
			require.Zero(t, res.Warnings+res.Errors, s.readStored(t, res).notes)
			bodies := s.storedBodies(t, res)
			require.Contains(t, bodies, configMap("cm-002"))
			require.Equal(t, map[string]any{"k": "v"}, bodies[configMap("cm-004")]["data"])
			entries := s.readStored(t, res).entries
			revisions := map[string]bool{}
			for _, e := range entries {
				require.NotEmpty(t, e.Cut, "it is not of the revision of the backup")
				revisions[e.Cut] = true
			}
			require.Len(t, revisions, 1)
		})
	}
}

// A successor continues with what was read, at the revision of the first holder, and stores
// nothing twice.
func TestASuccessorGoesOnWithTheItemsThatWereReadAgain(t *testing.T) {
	items, names := postOperation(12)
	for n := 2; ; n++ {
		api := newEstateServer()
		s := newSetup(t, api, fiftyConfigMaps(), "a").addActions(tracingAction("a.io/x", action.Selector{}))
		s.cfg.PartItems = 3
		died := dieAt(s.store, n)
		_, err := StoreAgain(t.Context(), s.cfg, s.job, items)
		if !died() {
			require.NoError(t, err)
			require.Greater(t, n, 12)
			return
		}
		require.ErrorIs(t, err, errDead)
		s.store.Inject(nil)
		read := 0
		for _, key := range s.store.Keys() {
			if data, _ := s.store.Bytes(key); !strings.Contains(key, "/checkpoint-") || data[0] != '{' {
				continue
			}
			require.NoError(t, checkpoint.Each(t.Context(), s.store, "b1", "uid-1", []string{key}, func(_ string, rec *checkpoint.Record) error {
				read = rec.PostOperation.Read
				return nil
			}))
		}
		api.Advance()
		for _, name := range names {
			api.Delete(pathOf(name))
		}
		next := s.nextOwner(t, 2)
		next.cfg.PartItems = 3
		res, err := StoreAgain(t.Context(), next.cfg, next.job, items)
		require.NoError(t, err)
		bodies := next.storedBodies(t, res)
		want := len(names)
		if read == 0 { // the revision is the second holder's
			want = 0
		}
		require.Len(t, bodies, want, "%d were read before write %d", read, n)
		require.Equal(t, len(names)-want, res.Warnings)
		require.Len(t, bodies, res.Items)
		for path, body := range bodies {
			require.Equal(t, "a.io/x", traceOf(body), path)
		}
	}
}

// What the call that began an operation changed about its item is in the copy that is stored again,
// beside what the operation changed, and not what the object was before.
func TestWhatAStartChangedIsInTheItemThatIsStoredAgain(t *testing.T) {
	api := newEstateServer()
	starts := &keyedAction{starter: starter{&fakeAction{name: "a.io/starts", do: func(_ context.Context, id action.Identity, o *action.Object) (action.BackupResult, error) {
		u, err := o.Copy()
		if err != nil {
			return action.BackupResult{}, err
		}
		u.SetLabels(nil)
		u.SetAnnotations(map[string]string{"vendor.io/upload": "of " + id.Name})
		u.Object["big"] = int64(1<<62 + 1)
		return action.BackupResult{Object: action.FromContent(u.Object)}, nil
	}}}, keys: map[string][]string{}}
	s := newSetup(t, api, fiftyConfigMaps(), "a").addActions(starts)
	_, err := Run(t.Context(), s.cfg, s.job)
	require.NoError(t, err)
	calls := len(starts.keys)
	api.Advance()
	api.Change(pathOf("cm-000"), func(o map[string]any) {
		o["data"] = map[string]any{"state": "done"}
		meta, _ := o["metadata"].(map[string]any)
		meta["annotations"] = map[string]any{"vendor.io/ready": "true"}
	})
	next := s.nextOwner(t, 2)
	res, err := StoreAgain(t.Context(), next.cfg, next.job, []operation.Resource{{Resource: "configmaps", Namespace: "a", Name: "cm-000"}})
	require.NoError(t, err)
	require.Zero(t, res.Errors)
	require.Len(t, starts.keys, calls, "nothing is started")
	body := next.storedBodies(t, res)[configMap("cm-000")]
	require.Equal(t, map[string]any{"state": "done"}, body["data"])
	meta, _ := body["metadata"].(map[string]any)
	require.Equal(t, map[string]any{"vendor.io/upload": "of cm-000", "vendor.io/ready": "true"}, meta["annotations"])
	require.NotContains(t, meta, "labels")
	require.InDelta(t, float64(1<<62+1), body["big"], 0)
}

// An action that took part in the collection and is missing when items are stored again is an
// error, once, however often its holder changes; what the collection noted already is not noted
// again.
func TestAnActionThatIsMissingOnlyAfterTheOperationsIsAnError(t *testing.T) {
	s := newSetup(t, newEstateServer(), fiftyConfigMaps(), "a").addActions(tracingAction("a.io/x", action.Selector{}), tracingAction("a.io/y", action.Selector{}),
		&fakeAction{name: "a.io/silent", unbound: errors.New("no answer")})
	s.job.Actions.Errors = []string{"plugin p cannot be asked"}
	_, err := Run(t.Context(), s.cfg, s.job)
	require.NoError(t, err)
	items, _ := postOperation(5)
	want := []string{" /: plugin q cannot be asked", " /: action a.io/y is missing: items that operations named are stored again without what it changes"}
	for n := 2; ; n++ {
		next := s.nextOwner(t, 2)
		next.store = memstore.New()
		for _, key := range s.store.Keys() {
			data, _ := s.store.Bytes(key)
			next.store.Set(key, data)
		}
		next.job.Store = next.store
		next.addActions(tracingAction("a.io/x", action.Selector{}), &fakeAction{name: "a.io/silent", unbound: errors.New("no answer")})
		next.job.Actions.Errors, next.cfg.PartItems = []string{"plugin p cannot be asked", "plugin q cannot be asked"}, 2
		died := dieAt(next.store, n)
		_, err := StoreAgain(t.Context(), next.cfg, next.job, items)
		if !died() {
			require.NoError(t, err)
			require.Greater(t, n, 5)
			return
		}
		require.ErrorIs(t, err, errDead)
		next.store.Inject(nil)
		third := next.nextOwner(t, 3)
		res, err := StoreAgain(t.Context(), third.cfg, third.job, items)
		require.NoError(t, err)
		got := third.readStored(t, res).notesAt(joblog.Error)
		slices.Sort(got)
		slices.Sort(want)
		require.Equal(t, want, got, "dead at write %d", n)
		require.Equal(t, 2, res.Errors)
	}
}
