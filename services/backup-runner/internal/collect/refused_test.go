package collect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/job/effect"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/history"
)

// cancellable cancels operations, those of some objects never.
type cancellable struct {
	keyedAction
	mu        sync.Mutex
	cancelled []string
}

func (c *cancellable) CancelBegun(_ context.Context, id string, job []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !strings.Contains(string(job), `"b1"`) {
		return errors.New("the wrong backup")
	}
	c.cancelled = append(c.cancelled, id)
	if id == "op of cm-012" {
		return action.ErrNotCancelled
	}
	return nil
}

func numberedItems(n int, text string) []action.Item {
	return slices.Repeat([]action.Item{itemOf("configmaps a/" + text)}, n)
}

// excessiveAction answers for some objects with more than records take.
func excessiveAction() *fakeAction {
	return &fakeAction{name: "a.io/begins", do: func(_ context.Context, id action.Identity, _ *action.Object) (r action.BackupResult, err error) {
		r.OperationID = "op of " + id.Name
		switch id.Name {
		case "cm-000", "cm-012":
			r.PostOperation = numberedItems(10_000, "many")
		case "cm-006":
			r.Additional = numberedItems(110_000, "many")
		case "cm-018":
			r.Additional = numberedItems(110_000, "many")
			r.OperationID = ""
		case "cm-024":
			r.PostOperation = numberedItems(10_000, "many")
			err = errors.New("malformed answer")
		case "cm-030":
			r.PostOperation = numberedItems(operation.MaxPostItems, "many")
		case "cm-036":
			r.PostOperation = numberedItems(1, strings.Repeat("x", 600<<10))
		default:
			r.OperationID = ""
		}
		return r, err
	}}
}

// failuresByName are the errors of a backup about config maps, by their name.
func failuresByName(s stored) map[string]string {
	out := map[string]string{}
	for _, e := range s.notes {
		if e.Level == joblog.Error {
			out[e.Name] = e.Err
		}
	}
	return out
}

// A plugin that answered with more than a record takes failed the whole backup, once everything was
// collected, and its operations went on.
func TestAnAnswerThatNoRecordTakesCostsItsObject(t *testing.T) {
	const operations, additional = "the operation has 10000 post-operation items, at most 1000 are possible",
		"the answer has 110000 additional items, at most 10000 are possible"
	s := newSetup(t, newEstateServer(), fiftyConfigMaps(), "a")
	begins := &cancellable{keyedAction: keyedAction{starter: starter{excessiveAction()}, own: true, keys: map[string][]string{}}}
	s.addActions(begins)
	res, got := s.runJob(t)
	errs := failuresByName(got)
	require.Len(t, errs, 6)
	for name, parts := range map[string][]string{
		"cm-000": {operations, `; operation "op of cm-000", which it began, is cancelled`},
		"cm-006": {additional, `; operation "op of cm-006", which it began, is cancelled`},
		"cm-012": {operations, "which it began, could not be cancelled: the operation does not stop"},
		"cm-018": {additional},
		"cm-024": {"malformed answer; ", operations, "is cancelled"},
		"cm-036": {"too large", `; operation "op of cm-036", which it began, is cancelled`},
	} {
		require.Contains(t, errs[name], "action a.io/begins: Execute of ConfigMap a/"+name+": ")
		for _, part := range parts {
			require.Contains(t, errs[name], part)
		}
	}
	require.NotContains(t, errs["cm-018"], "which it began")
	slices.Sort(begins.cancelled)
	require.Equal(t, []string{"op of cm-000", "op of cm-006", "op of cm-012", "op of cm-024", "op of cm-036"}, begins.cancelled, "each once")
	require.Len(t, got.items, 45, "44 and their Namespace")
	require.Len(t, res.Operations, 6, "those that are cancelled are waited for")
	for _, o := range res.Operations {
		require.Equal(t, o.Item.Name == "cm-030", len(o.PostOperation) > 0)
	}
	_, err := operation.Seal(t.Context(), s.store, operation.List{Job: operation.Job{Kind: operation.KindBackup, Name: "b1", UID: "uid-1"}, Operations: res.Operations})
	require.NoError(t, err)

	plain := newSetup(t, newEstateServer(), fiftyConfigMaps(), "a").addActions(starter{excessiveAction()})
	_, got = plain.runJob(t)
	require.Contains(t, failuresByName(got)["cm-000"], "which it began, could not be cancelled: the action cannot be asked to")
}

// newFullSetup is a setup with as many operations as a backup may have, after an earlier holder that announced a
// call.
func newFullSetup(t *testing.T) *setup {
	t.Helper()
	s := newSetup(t, newEstateServer(), fiftyConfigMaps(), "a")
	log, err := checkpoint.Open(t.Context(), s.store, "b1", "uid-1", 1)
	require.NoError(t, err)
	call := func(name string) checkpoint.Call {
		return checkpoint.Call{Action: "a.io/begins", Object: checkpoint.Object{Kind: "ConfigMap", Namespace: "a", Name: name}}
	}
	intents, outcomes := []checkpoint.Call{call("cm-006")}, []checkpoint.Outcome{}
	for i := range operation.MaxOperations {
		gone := call(fmt.Sprint("gone-", i))
		intents = append(intents, gone)
		outcomes = append(outcomes, checkpoint.Outcome{Call: gone, Begun: &operation.Operation{
			Action: gone.Action, Kind: "BackupItemActionV2", ID: fmt.Sprint(i), Item: operation.Resource{Resource: "configmaps", Namespace: "a", Name: gone.Object.Name}, Created: time.Unix(1, 0).UTC()}})
	}
	for _, rec := range []checkpoint.Record{{Intents: intents}, {Outcomes: outcomes}} {
		_, err := log.Append(t.Context(), rec)
		require.NoError(t, err)
	}
	return s.nextOwner(t, 2)
}

// A backup with as many operations as it may have makes no call that may begin one. A call that an
// earlier holder announced is repeated with its key: its operation counts already.
func TestNoMoreOperationsAreBegunThanAllowed(t *testing.T) {
	s := newFullSetup(t)
	begins := &cancellable{keyedAction: keyedAction{starter: starter{&fakeAction{name: "a.io/begins"}}, keys: map[string][]string{}}}
	s.addActions(begins)
	res, got := s.runJob(t)
	require.Len(t, begins.keys, 1)
	require.Len(t, begins.keys["cm-006"], 1)
	require.Empty(t, begins.cancelled)
	require.Len(t, res.Operations, operation.MaxOperations+1)
	require.Len(t, s.intendedObjects(t), operation.MaxOperations+1, "of the earlier holder")
	errs := failuresByName(got)
	require.Len(t, errs, 49)
	require.Equal(t, "action a.io/begins: Execute of ConfigMap a/cm-000: the call is not made, since it may begin an operation: "+
		"too large: the job has 10000 operations, and no more are begun", errs["cm-000"])
}

// The items that answers have in one record are read by the next holder, which took it for damaged.
func TestARecordOfManyItemsIsRead(t *testing.T) {
	s := newSetup(t, newEstateServer(), fiftyConfigMaps(), "a")
	records, err := checkpoint.Open(t.Context(), s.store, "b1", "uid-1", 1)
	require.NoError(t, err)
	log := history.NewLog(records)
	least := operation.Resource{Resource: "r", Name: "n"}
	for i := range 6 {
		out := checkpoint.Outcome{Call: checkpoint.Call{Action: "a.io/begins", Object: checkpoint.Object{Kind: "ConfigMap", Name: fmt.Sprint(i)}}}
		out.Additional = slices.Repeat([]operation.Resource{least}, 10_000)
		log.End(&out)
	}
	for log.Pending() {
		_, err := log.Append(t.Context(), checkpoint.Record{})
		require.NoError(t, err)
	}
	read := 0
	require.NoError(t, checkpoint.Each(t.Context(), s.store, "b1", "uid-1", s.store.Keys(), func(_ string, rec *checkpoint.Record) error {
		read += len(rec.Outcomes)
		return nil
	}))
	require.Equal(t, 6, read)
}

// A run that ended recorded what one record takes of the operations that were begun: those of the
// rest went on, and no record had them.
func TestAllOutcomesAreRecordedAtTheEndOfARun(t *testing.T) {
	s := newSetup(t, newEstateServer(), fiftyConfigMaps(), "a")
	records, err := checkpoint.Open(t.Context(), s.store, "b1", "uid-1", 1)
	require.NoError(t, err)
	r := newCollectRun(t.Context(), s.cfg, s.job)
	r.intents = history.NewLog(records)
	for i := range 2 {
		r.intents.End(&checkpoint.Outcome{Call: checkpoint.Call{Action: "a.io/begins"}, Answer: effect.Answer{Body: make([]byte, 9<<20)}, Begun: &operation.Operation{ID: fmt.Sprint(i)}})
	}
	require.NoError(t, r.recordOutcomes(t.Context())) // with no limit of time
	read := 0
	require.NoError(t, checkpoint.Each(t.Context(), s.store, "b1", "uid-1", s.store.Keys(), func(_ string, rec *checkpoint.Record) error {
		read += len(rec.Outcomes)
		return nil
	}))
	require.Equal(t, 2, read)
	require.False(t, r.intents.Pending())
}
