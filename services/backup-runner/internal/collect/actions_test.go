package collect

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/job/journal"
	"github.com/holdfast-io/holdfast/pkg/joblog"
)

func TestActionsChangeWhatTheyMatch(t *testing.T) {
	first := tracingAction("a.io/first", action.Selector{IncludedResources: []string{"cm"}, IncludedNamespaces: []string{"a"}, Labels: "app in (x,y)"})
	first.selector.IncludedResources = []string{"configmaps"}
	second := tracingAction("b.io/second", action.Selector{Labels: "app=x", ExcludedNamespaces: []string{"b"}})
	idle := tracingAction("c.io/idle", selectResources("nosuch.example.com"))
	plain := newSetup(t, newEstateServer(), velerov1.BackupSpec{})
	want, err := Run(t.Context(), plain.cfg, plain.job)
	require.NoError(t, err)

	s := newSetup(t, newEstateServer(), velerov1.BackupSpec{}).addActions(first, second, idle)
	res, err := Run(t.Context(), s.cfg, s.job)
	require.NoError(t, err)
	require.Zero(t, res.Errors, s.readStored(t, res).notesAt(joblog.Error))
	require.Equal(t, want.Items, res.Items)
	require.Equal(t, plain.readStored(t, want).items, s.readStored(t, res).items)
	require.Equal(t, Counts{Items: res.Items, Total: res.Items}, s.job.Progress.Read())
	require.Equal(t, 100, first.calledOnceEach(t), "two thirds of those in a")
	require.Equal(t, 50, second.calledOnceEach(t))
	require.Zero(t, idle.calledOnceEach(t))

	bodies, before := s.storedBodies(t, res), plain.storedBodies(t, want)
	entries := s.readStored(t, res).entries
	require.Equal(t, "a.io/first b.io/second", traceOf(bodies[configMap("cm-000")]))
	require.Equal(t, []string{"a.io/first", "b.io/second"}, entries[configMap("cm-000")].Actions)
	require.Equal(t, "a.io/first", traceOf(bodies[configMap("cm-004")]))
	require.Nil(t, traceOf(bodies[configMap("cm-002")]))
	require.Empty(t, entries[configMap("cm-002")].Actions)
	for path, body := range bodies {
		if traceOf(body) == nil {
			require.Equal(t, before[path], body)
		}
	}
	left, err := os.ReadDir(s.job.Dir)
	require.NoError(t, err)
	require.Empty(t, left, "no work file is left")
}

func TestAnObjectThatAnActionLeavesAloneIsStoredAsListed(t *testing.T) {
	plain := newSetup(t, newEstateServer(), velerov1.BackupSpec{})
	want, err := Run(t.Context(), plain.cfg, plain.job)
	require.NoError(t, err)
	looks := &fakeAction{name: "a.io/looks", do: func(context.Context, action.Identity, *action.Object) (action.BackupResult, error) {
		return action.BackupResult{}, nil
	}}
	s := newSetup(t, newEstateServer(), velerov1.BackupSpec{}).addActions(looks)
	res, err := Run(t.Context(), s.cfg, s.job)
	require.NoError(t, err)
	require.Equal(t, want.Items, looks.calledOnceEach(t), "an empty selector is everything")
	before := plain.readStored(t, want).entries
	after := s.readStored(t, res).entries
	require.Len(t, after, len(before))
	for path, item := range before {
		require.Equal(t, item.SHA256, after[path].SHA256, path)
		require.Equal(t, item.References, after[path].References)
	}
}

func TestAnActionThatFailsCostsItsObject(t *testing.T) {
	fails := &fakeAction{name: "a.io/x", selector: selectResources("configmaps"), do: func(_ context.Context, id action.Identity, o *action.Object) (action.BackupResult, error) {
		switch id.Name {
		case "cm-000":
			return action.BackupResult{}, fmt.Errorf("plugin a.io/x: Execute of %s: no such volume", id)
		case "cm-002":
			panic("broken")
		case "cm-004":
			return annotatedResult(o, velerov1.AnnotationSkipFromBackup, "")
		case "cm-006":
			return action.BackupResult{OperationID: "op-1"}, nil
		}
		return action.BackupResult{}, nil
	}}
	s := newSetup(t, newEstateServer(), velerov1.BackupSpec{}).addActions(fails)
	res, got := s.runJob(t)
	require.Equal(t, 300, fails.calledOnceEach(t))
	require.Equal(t, 297, got.countOf("configmaps"))
	require.Equal(t, []string{"v1/ConfigMap a/cm-000", "v1/ConfigMap a/cm-002"}, got.failed, "the resource list names what failed, and not what was left out")
	var errs []string
	for _, e := range got.notes {
		if e.Level == joblog.Error {
			errs = append(errs, e.Resource+" "+e.Namespace+"/"+e.Name+": "+e.Message+": "+e.Err)
		}
	}
	slices.Sort(errs)
	require.Equal(t, 3, res.Errors)
	require.Equal(t, []string{
		"configmaps a/cm-000: an action failed: the object is not backed up: plugin a.io/x: Execute of ConfigMap a/cm-000: no such volume",
		"configmaps a/cm-002: an action failed: the object is not backed up: action a.io/x: Execute: panic: broken",
		"configmaps a/cm-006: the object is backed up, but an action did not come to its end: action a.io/x: Execute: it began operation \"op-1\", which nothing waits for: an item that is stored again begins none",
	}, errs)
	require.Contains(t, got.notesAt(joblog.Info), "configmaps a/cm-004: left out by action a.io/x")
	require.Equal(t, res.Items, s.job.Progress.Read().Items)
	require.Equal(t, 3, s.job.Progress.Read().Errors)
}

func TestAnActionThatDoesNotSayWhatItAppliesToIsAnError(t *testing.T) {
	silent := tracingAction("a.io/silent", action.Selector{})
	silent.unbound = errors.New("plugin a.io/silent: AppliesTo: no answer in time")
	wrong := tracingAction("b.io/wrong", action.Selector{Labels: "=="})
	fine := tracingAction("c.io/fine", selectResources("nodes"))
	base := newSetup(t, newEstateServer(), velerov1.BackupSpec{}).addActions(silent, wrong, fine)
	res, err := Run(t.Context(), base.cfg, base.job)
	require.NoError(t, err)
	require.Equal(t, 2, res.Errors, "once each")
	require.Equal(t, 1, fine.calledOnceEach(t))
	require.Zero(t, silent.calledOnceEach(t))

	s := base.firstOwner(t) // and once, if two holders ask
	died := dieAt(s.store, 4)
	_, err = Run(t.Context(), s.cfg, s.job)
	require.ErrorIs(t, err, errDead)
	require.True(t, died())
	s.store.Inject(nil)
	next := s.nextOwner(t, 2)
	res, err = Run(t.Context(), next.cfg, next.job)
	require.NoError(t, err)
	require.Equal(t, 2, res.Errors)
}

func TestWhatPluginsLogIsInTheLogAndCounts(t *testing.T) {
	lines := &Lines{}
	closed := false
	talks := &fakeAction{name: "a.io/talks", selector: selectResources("nodes"), do: func(context.Context, action.Identity, *action.Object) (action.BackupResult, error) {
		lines.Add(joblog.Entry{Level: joblog.Warning, Message: "careful", Source: "talks"})
		lines.Add(joblog.Entry{Level: joblog.Error, Message: "broken", Source: "talks"})
		for range 100 {
			lines.Add(joblog.Entry{Level: joblog.Info, Message: strings.Repeat("x", 100_000), Source: "talks"})
		}
		return action.BackupResult{}, nil
	}}
	s := newSetup(t, newEstateServer(), velerov1.BackupSpec{}).addActions(talks)
	s.job.Actions.Lines = lines
	s.job.Actions.Close = func() { closed = true }
	res, err := Run(t.Context(), s.cfg, s.job)
	require.NoError(t, err)
	require.True(t, closed)
	require.Equal(t, 1, res.Warnings)
	require.Equal(t, 1, res.Errors)
	got := s.readStored(t, res)
	require.Contains(t, strings.Join(got.notesAt(joblog.Info), "\n"), "plugins log too much: ")
	require.Equal(t, 1, s.job.Progress.Read().Errors)
}

// busyScenario has actions on most kinds: some change, some fail, some leave out.
func busyScenario() scenario {
	return withBusyActions(allScenarios()["dead kinds"])
}

func withBusyActions(sc scenario) scenario {
	sc.actions = func() []action.BackupItem {
		return []action.BackupItem{
			tracingAction("a.io/trace", selectResources("configmaps", "pods", "widgets.example.com", "namespaces")),
			additionalAction("b.io/asks", selectResources("pods"), true, func(id action.Identity) []string {
				n := id.Name[len(id.Name)-2:]
				return []string{"persistentvolumes pv-" + n, "configmaps a/cm-0" + n, "configmaps a/nosuch", "unseens.example.com c/u-" + n[1:]}
			}),
			&fakeAction{name: "b.io/odd", selector: selectResources("configmaps", "pods"), do: func(_ context.Context, id action.Identity, o *action.Object) (action.BackupResult, error) {
				switch id.Name[len(id.Name)-1] {
				case '3':
					return action.BackupResult{}, errors.New("odd")
				case '7':
					return annotatedResult(o, velerov1.AnnotationSkipFromBackup, "yes")
				}
				return action.BackupResult{}, nil
			}},
		}
	}
	return sc
}

// A call that fails while the run stops is no error of the backup: the next holder repeats it.
func TestAnActionThatAStopInterruptsIsAskedAgain(t *testing.T) {
	stop := make(chan struct{})
	starts := &interrupted{fakeAction: tracingAction("a.io/starts", selectResources("nodes")), stop: stop}
	s := newSetup(t, newEstateServer(), velerov1.BackupSpec{}).addActions(starts)
	s.job.Stop = stop
	_, err := Run(t.Context(), s.cfg, s.job)
	require.ErrorIs(t, err, ErrStopped)
	require.Zero(t, s.job.Progress.Read().Errors)
	trace := tracingAction("a.io/starts", selectResources("nodes"))
	next := s.nextOwner(t, 2).addActions(trace)
	res, got := next.runJob(t)
	require.Zero(t, res.Errors, got.notesAt(joblog.Error))
	require.Equal(t, 1, trace.calledOnceEach(t))
}

// interrupted is an action whose process is starting when the run is stopped.
type interrupted struct {
	*fakeAction
	stop chan struct{}
}

func (i *interrupted) AppliesTo(context.Context) (action.Selector, error) {
	close(i.stop)
	return action.Selector{}, errors.New("plugin process did not start")
}

// newStoppedSetup is a run of fifty config maps that was stopped while an action was called for cm-060,
// whose call failed.
func newStoppedSetup(t *testing.T) *setup {
	t.Helper()
	stop := make(chan struct{})
	s := newSetup(t, newEstateServer(), fiftyConfigMaps(), "a")
	s.job.Stop = stop
	s.addActions(&fakeAction{name: "a.io/x", do: func(_ context.Context, id action.Identity, _ *action.Object) (action.BackupResult, error) {
		if id.Name != "cm-060" {
			return action.BackupResult{}, nil
		}
		close(stop)
		return action.BackupResult{}, errors.New("plugin process died")
	}})
	_, err := Run(t.Context(), s.cfg, s.job)
	require.ErrorIs(t, err, ErrStopped)
	return s
}

// Nor is a call that failed then.
func TestACallThatAStopInterruptsIsMadeAgain(t *testing.T) {
	trace := tracingAction("a.io/x", action.Selector{})
	res, got := newStoppedSetup(t).nextOwner(t, 2).addActions(trace).runJob(t)
	require.Zero(t, res.Errors, got.notesAt(joblog.Error))
	require.Equal(t, 50, got.countOf("configmaps"))
	require.Contains(t, trace.calls, "ConfigMap a/cm-060")
}

// Catches a successor that accepts any file of spooled objects: one with another hash than in its
// record would be stored as the cluster's.
func TestHeldObjectsWithAnotherHashEndTheJob(t *testing.T) {
	s := newStoppedSetup(t)
	next := s.nextOwner(t, 2).addActions(tracingAction("a.io/x", action.Selector{}))
	var damaged []string
	for _, key := range s.store.Keys() {
		if strings.Contains(key, "-h") {
			data, _ := s.store.Bytes(key)
			data[len(data)-1] ^= 1
			s.store.Set(key, data)
			damaged = append(damaged, key)
		}
	}
	require.NotEmpty(t, damaged)
	_, err := Run(t.Context(), next.cfg, next.job)
	require.ErrorIs(t, err, journal.ErrCorrupt)
	require.ErrorContains(t, err, "it has other bytes than its record says")
}

// A part is sealed after as many objects whatever becomes of them: what a holder did and did not
// record is lost with it, and it is in memory.
func TestWhatIsNotStoredIsRecordedAsOftenAsWhatIs(t *testing.T) {
	for name, do := range map[string]func(o *action.Object) (action.BackupResult, error){
		"left out": func(o *action.Object) (action.BackupResult, error) {
			return annotatedResult(o, velerov1.AnnotationSkipFromBackup, "")
		},
		"failed": func(*action.Object) (action.BackupResult, error) { return action.BackupResult{}, errors.New("broken") },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSetup(t, newEstateServer(), velerov1.BackupSpec{IncludedResources: []string{"configmaps"}}, "a")
			s.cfg.PartItems = 10
			s.addActions(&fakeAction{name: "a.io/x", do: func(_ context.Context, _ action.Identity, o *action.Object) (action.BackupResult, error) {
				return do(o)
			}})
			_, got := s.runJob(t)
			require.Equal(t, []string{"resources/namespaces/cluster/a.json"}, got.items)
			records := 0
			for i := range got.records {
				done := len(got.records[i].LeftOut) + got.records[i].Part.Items
				require.LessOrEqual(t, done, s.cfg.PartItems)
				if done > 0 {
					records++
				}
			}
			require.Equal(t, 16, records, "the last has the Namespace")
		})
	}
}

// A worker that a stop interrupts leaves the others the time that a stop gives them.
func TestACallThatAStopInterruptsEndsNoOther(t *testing.T) {
	t.Parallel()
	stop, begun := make(chan struct{}), make(chan struct{})
	var cause error
	s := newSetup(t, newEstateServer(), fiftyConfigMaps(), "a")
	s.job.Stop, s.cfg.BlockWorkers = stop, 2
	s.addActions(&fakeAction{name: "a.io/x", do: func(ctx context.Context, id action.Identity, _ *action.Object) (action.BackupResult, error) {
		switch id.Name {
		case "cm-000":
			<-begun
			close(stop)
			return action.BackupResult{}, errors.New("plugin process died")
		case "cm-006":
			close(begun)
			<-ctx.Done()
			cause = context.Cause(ctx)
			return action.BackupResult{}, cause
		}
		return action.BackupResult{}, nil
	}})
	_, err := Run(t.Context(), s.cfg, s.job)
	require.ErrorIs(t, err, ErrStopped)
	require.Equal(t, ErrStopped.Error(), cause.Error(), "the stop itself ended it, and no other worker")
}
