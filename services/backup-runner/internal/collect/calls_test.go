package collect

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/job/effect"
	"github.com/holdfast-io/holdfast/pkg/job/jobtest"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
)

// starter is an action whose calls may begin operations.
type starter struct{ *fakeAction }

var _ action.BackupOperations = starter{}

func (starter) OperationKind() string { return "BackupItemActionV2" }

// intendedObjects returns the objects with an intent in the records of the bucket.
func (s *setup) intendedObjects(t *testing.T) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	for _, key := range s.store.Keys() {
		data, _ := s.store.Bytes(key)
		if !strings.Contains(key, "/checkpoint-") || data[0] != '{' {
			continue
		}
		err := checkpoint.Each(context.Background(), s.store, "b1", "uid-1", []string{key}, func(_ string, rec *checkpoint.Record) error { //nolint:usetesting // also of calls that outlive the test's context
			for _, c := range rec.Intents {
				out[c.Action+" "+c.Object.Kind+" "+c.Object.Namespace+"/"+c.Object.Name] = true
			}
			return nil
		})
		require.NoError(t, err)
	}
	return out
}

// fiftyConfigMaps selects 50 configmaps.
func fiftyConfigMaps() velerov1.BackupSpec {
	return velerov1.BackupSpec{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}, IncludedResources: []string{"configmaps"}}
}

func TestACallThatMayBeginAnOperationIsRecordedBefore(t *testing.T) {
	for _, workers := range []int{1, 4} {
		s := newSetup(t, newEstateServer(), fiftyConfigMaps(), "a")
		begins := &fakeAction{name: "a.io/begins"}
		begins.do = func(_ context.Context, id action.Identity, _ *action.Object) (action.BackupResult, error) {
			if !s.intendedObjects(t)["a.io/begins "+id.String()] {
				return action.BackupResult{}, errors.New("no record says that this call is made")
			}
			return action.BackupResult{}, nil
		}
		s.addActions(starter{begins}, tracingAction("b.io/trace", action.Selector{}))
		s.cfg.BlockWorkers = workers
		res, _ := s.runJob(t)
		require.Zero(t, res.Errors)
		require.Equal(t, 50, begins.calledOnceEach(t))
		require.Len(t, s.intendedObjects(t), 50, "of the other action nothing is recorded")
	}
}

// mixedOutcomeAction changes objects, begins operations, fails, and returns additional items.
func mixedOutcomeAction() *fakeAction {
	return &fakeAction{name: "a.io/begins", selector: selectResources("configmaps"), do: func(_ context.Context, id action.Identity, o *action.Object) (action.BackupResult, error) {
		switch id.Name {
		case "cm-006":
			return action.BackupResult{}, errors.New("no such volume")
		case "cm-012":
			return action.BackupResult{}, nil
		}
		r, err := annotatedResult(o, "trace", "begun <"+id.Name+">")
		if id.Name == "cm-018" {
			r.OperationID = "op-1"
		}
		if id.Name == "cm-024" {
			r.Additional = []action.Item{itemOf("nodes n1"), itemOf("configmaps a/cm-002"), itemOf("configmaps a/nosuch")}
		}
		return r, err
	}}
}

// Promise P3: no call that may begin an operation is made twice. One that was under way when its
// holder died costs its object an error, any other is as in an undisturbed run.
func TestNoCallThatMayBeginAnOperationIsMadeTwice(t *testing.T) {
	t.Parallel()
	undisturbed := newSetup(t, newEstateServer(), fiftyConfigMaps(), "a").addActions(starter{mixedOutcomeAction()})
	want, err := Run(t.Context(), undisturbed.cfg, undisturbed.job)
	require.NoError(t, err)
	bodies := undisturbed.storedBodies(t, want)
	for _, workers := range []int{1, 4} {
		t.Run(fmt.Sprint(workers), func(t *testing.T) {
			t.Parallel()
			base := newSetup(t, newEstateServer(), fiftyConfigMaps(), "a")
			base.cfg.PartItems, base.cfg.BlockWorkers = 8, workers
			total := 0
			for n := 1; ; n += jobtest.WriteStride() {
				calls := mixedOutcomeAction()
				s := base.firstOwner(t).addActions(starter{calls})
				died := dieAt(s.store, n)
				_, err := Run(t.Context(), s.cfg, s.job)
				if !died() {
					require.NoError(t, err)
					require.Greater(t, n, 40, "the run was cut at many points")
					break
				}
				require.ErrorIs(t, err, errDead)
				s.store.Inject(nil)
				next := s.nextOwner(t, 2)
				res, got := next.runJob(t)
				calls.calledOnceEach(t) // each once
				var unclear []string
				for _, e := range got.notes {
					if strings.Contains(e.Err, effect.ErrUnclear.Error()) {
						require.Contains(t, e.Err, "action a.io/begins: Execute of ConfigMap "+e.Namespace+"/"+e.Name+": ")
						unclear = append(unclear, e.Name)
					}
				}
				require.LessOrEqual(t, len(unclear), workers, "only what was under way")
				total += len(unclear)
				requireSame(t, bodies, next.storedBodies(t, res), unclear)
			}
			if jobtest.WriteStride() == 1 {
				require.Positive(t, total, "some were under way")
			}
		})
	}
}

// requireSame compares stored objects but for the unclear ones, and what came with them.
func requireSame(t *testing.T, want, got map[string]map[string]any, unclear []string) {
	t.Helper()
	missing := map[string]bool{}
	for _, name := range unclear {
		missing[configMap(name)] = true
		if name == "cm-024" { // its additional items
			missing["resources/nodes/cluster/n1.json"], missing[configMap("cm-002")] = true, true
		}
		if name == "cm-002" {
			missing[configMap("cm-024")] = true
		}
	}
	for path, body := range want {
		if !missing[path] {
			require.Equal(t, body, got[path], path)
		}
	}
	for path := range got {
		require.Contains(t, want, path)
	}
}

// preparing is a starter whose process comes up in Prepare.
type preparing struct {
	starter
	prepare func(ctx context.Context) error
}

func (p preparing) Prepare(ctx context.Context) error { return p.prepare(ctx) }

// A call is announced when its process is there, and not before.
func TestACallIsAnnouncedWhenItCanBeMade(t *testing.T) {
	s := newSetup(t, newEstateServer(), fiftyConfigMaps(), "a")
	prepared := 0
	looks := tracingAction("a.io/begins", action.Selector{})
	s.addActions(preparing{starter{looks}, func(context.Context) error {
		if n := len(s.intendedObjects(t)); n != prepared {
			return fmt.Errorf("%d calls are announced, %d were made", n, prepared)
		}
		prepared++
		return nil
	}})
	res, got := s.runJob(t)
	require.Zero(t, res.Errors, got.notesAt(joblog.Error))
	require.Equal(t, 50, looks.calledOnceEach(t))
}

// A call that a stop prevented is made by the next holder, whether it was announced or not.
func TestACallThatWasNotSentIsMadeByTheNextHolder(t *testing.T) {
	t.Parallel()
	unsent := errors.New("plugin process did not start")
	for name, announced := range map[string]bool{"before it is announced": false, "after it was": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSetup(t, newEstateServer(), fiftyConfigMaps(), "a")
			stop := make(chan struct{})
			s.job.Stop = stop
			s.job.Actions.IsNotSent = func(err error) bool { return errors.Is(err, unsent) }
			calls := &fakeAction{name: "a.io/begins", do: func(ctx context.Context, id action.Identity, _ *action.Object) (action.BackupResult, error) {
				if !announced || id.Name != "cm-060" {
					return action.BackupResult{}, nil
				}
				close(stop)
				<-ctx.Done()
				return action.BackupResult{}, unsent
			}}
			n := 0
			s.addActions(preparing{starter{calls}, func(ctx context.Context) error {
				if n++; announced || n < 10 {
					return nil
				}
				close(stop)
				<-ctx.Done()
				return unsent
			}})
			_, err := Run(t.Context(), s.cfg, s.job)
			require.ErrorIs(t, err, ErrStopped)
			calls = &fakeAction{name: "a.io/begins", calls: calls.calls, do: func(context.Context, action.Identity, *action.Object) (action.BackupResult, error) {
				return action.BackupResult{}, nil
			}}
			delete(calls.calls, "ConfigMap a/cm-060")
			next := s.nextOwner(t, 2)
			next.addActions(starter{calls})
			res, got := next.runJob(t)
			require.Zero(t, res.Errors, got.notesAt(joblog.Error))
			require.Equal(t, 50, calls.calledOnceEach(t), "each once")
			require.Equal(t, 50, got.countOf("configmaps"))
		})
	}
}
