package collect

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/json/jsonlist"
	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
	"github.com/holdfast-io/holdfast/pkg/kube/rawlist"
	"github.com/holdfast-io/holdfast/pkg/kube/resource"
	"github.com/holdfast-io/holdfast/pkg/spec/selection"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/plan"
)

// Stopped during any list request, a run ends with everything recorded that it listed: the
// next holder lists only the rest.
func TestStoppedAtEachPage(t *testing.T) {
	t.Parallel()
	sc := allScenarios()["dead kinds"]
	want, total := sc.runUndisturbed(t)
	for _, workers := range []int{1, 4} {
		base, api := sc.setupFor(t, workers)
		var mu sync.Mutex
		var left int // requests before the stop
		var stop chan struct{}
		api.Before = func(*kubetest.Server, *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			if left--; left == 0 {
				close(stop)
			}
		}
		for n := 1; n < 30; n += 3 {
			s := base.firstOwner(t)
			mu.Lock()
			stop, left = make(chan struct{}), n
			mu.Unlock()
			lists := &counting{Lister: s.cfg.Lister}
			s.job.Stop, s.cfg.Lister = stop, lists
			_, err := Run(t.Context(), s.cfg, s.job)
			require.ErrorIs(t, err, ErrStopped, "stopped at request %d", n)
			require.Equal(t, s.job.Progress.Read().Items, s.countRecorded(t), "all that was counted is recorded")
			next := s.nextOwner(t, 2)
			next.cfg.Lister = lists
			res, err := Run(t.Context(), next.cfg, next.job)
			require.NoError(t, err)
			require.Equal(t, want, next.readOutcome(t, res), "stopped at request %d", n)
			require.LessOrEqual(t, int(lists.objects.Load()), total, "nothing is listed twice")
		}
	}
}

// stuck is a lister whose lists of one kind do not come to an end.
type stuck struct {
	Lister
	resource string
	begun    chan struct{}
}

func (l *stuck) List(ctx context.Context, req rawlist.Request, sink rawlist.Sink) error {
	if req.Resource.Resource != l.resource {
		return l.Lister.List(ctx, req, sink)
	}
	close(l.begun)
	<-ctx.Done()
	return context.Cause(ctx)
}

func TestAStopDoesNotWaitForAPageThatDoesNotEnd(t *testing.T) {
	sc := allScenarios()["everything"]
	want, _ := sc.runUndisturbed(t)
	s, _ := sc.setupFor(t, 2)
	lists := &stuck{Lister: s.cfg.Lister, resource: "pods", begun: make(chan struct{})}
	stop := make(chan struct{})
	s.cfg.Lister, s.job.Stop, s.cfg.Clock = lists, stop, fastClock{}
	go func() {
		<-lists.begun
		close(stop)
	}()
	_, err := Run(t.Context(), s.cfg, s.job)
	require.ErrorIs(t, err, ErrStopped)
	require.Equal(t, s.job.Progress.Read().Items, s.countRecorded(t))
	next := s.nextOwner(t, 2)
	next.cfg.Lister = lists.Lister
	res, err := Run(t.Context(), next.cfg, next.job)
	require.NoError(t, err)
	require.Equal(t, want, next.readOutcome(t, res))
}

// A kind that went while no process held the backup is an error, as it would have been for the
// holder that planned to list it; one that came is not in the backup.
func TestKindsThatCameAndWentBetweenHolders(t *testing.T) {
	sc := allScenarios()["everything"]
	s, _ := sc.setupFor(t, 1)
	dieAt(s.store, 3) // nothing but the plan is recorded
	_, err := Run(t.Context(), s.cfg, s.job)
	require.ErrorIs(t, err, errDead)
	s.store.Inject(nil)

	changed := kubetest.New(append(kinds[:6:6], kinds[7], kubetest.Kind{Version: "v1", Kind: "Secret", Resource: "secrets", Namespaced: true})...)
	changed.Add("namespaces", kubetest.Object{Name: "a"})
	changed.Add("secrets", kubetest.Object{Namespace: "a", Name: "late"})
	next := newSetup(t, changed, sc.spec)
	next.store, next.job.Store, next.job.Epoch = s.store, s.store, 2
	res, err := Run(t.Context(), next.cfg, next.job)
	require.NoError(t, err)
	got := next.readOutcome(t, res)
	require.Equal(t, 1, got.Result.Errors)
	require.Contains(t, strings.Join(got.Notes, "\n"), "error widgets.example.com /: objects of this kind could not be listed, it is no longer served")
	require.NotContains(t, strings.Join(got.Items, "\n"), "late")

	again := next.nextOwner(t, 3)
	res, err = Run(t.Context(), again.cfg, again.job)
	require.NoError(t, err)
	require.Equal(t, got, again.readOutcome(t, res), "a third holder finds nothing left to do")
}

// An aggregated server that restarts at the takeover is waited for; one that stays away has not
// gone, and its objects are missing.
func TestAGroupThatDoesNotAnswerAtTheTakeover(t *testing.T) {
	for name, back := range map[string]bool{"comes back": true, "stays away": false} {
		t.Run(name, func(t *testing.T) {
			sc := allScenarios()["everything"]
			sc.spec.IncludedResources = []string{"configmaps", "widgets"} // a name that only the catalog explains
			want, _ := sc.runUndisturbed(t)
			s, _ := sc.setupFor(t, 1)
			whole := s.job
			dieAt(s.store, 3) // nothing but the plan is recorded
			_, err := Run(t.Context(), s.cfg, s.job)
			require.ErrorIs(t, err, errDead)
			s.store.Inject(nil)

			silenced := kubetest.New(slices.DeleteFunc(slices.Clone(kinds), func(k kubetest.Kind) bool { return k.Group == "example.com" })...)
			silenced.DeadGroups = []string{"example.com"}
			away := newSetup(t, silenced, sc.spec).job
			require.Len(t, away.Catalog.Failures(), 1)
			next := s.nextOwner(t, 2)
			next.cfg.Clock, next.job.Catalog, next.job.Filter = fastClock{}, away.Catalog, away.Filter
			asked := 0
			next.job.Discover = func(context.Context) (*resource.Catalog, *selection.Filter, error) {
				if asked++; asked == 2 && back {
					return whole.Catalog, whole.Filter, nil
				}
				return away.Catalog, away.Filter, nil
			}
			res, err := Run(t.Context(), next.cfg, next.job)
			require.NoError(t, err)
			got := next.readOutcome(t, res)
			if back {
				require.Equal(t, 2, asked)
				require.Equal(t, want, got)
				return
			}
			require.Equal(t, maxDiscoveries-1, asked)
			require.Contains(t, strings.Join(got.Notes, "\n"), `error widgets.example.com /: objects of this kind could not be listed, API group "example.com" does not answer`)
		})
	}
}

// without answers lists of definitions with what is defined.
type without struct {
	Lister
	defined bool
}

func (l *without) List(ctx context.Context, req rawlist.Request, sink rawlist.Sink) error {
	if req.Resource.Resource != "customresourcedefinitions" {
		return l.Lister.List(ctx, req, sink)
	}
	if !l.defined {
		return nil
	}
	item := []byte(`{"metadata":{"name":"widgets.example.com"}}`)
	return sink.Item(jsonlist.Item{Raw: item, Metadata: item[len(`{"metadata":`) : len(item)-1]})
}

// A kind whose definition was deleted after the discovery has no objects. A kind that does not answer although it is defined, or
// that the server defines itself, has objects that are lost.
func TestAKindThatGoesMeanwhileIsNoError(t *testing.T) {
	sc := allScenarios()["everything"]
	s, _ := sc.setupFor(t, 1)
	gone := &rawlist.StatusError{Code: http.StatusNotFound}
	for _, c := range []struct {
		custom, defined, went bool
		err                   error
	}{
		{custom: true, went: true, err: gone},
		{custom: true, defined: true, err: gone},
		{custom: true, err: &rawlist.StatusError{Code: http.StatusForbidden}},
		{err: gone},
	} {
		w := newUnitWorker(&listingConfig{Lister: &without{s.cfg.Lister, c.defined}, Cut: s.job.Cut}, nil)
		sink := &unitSink{w: w, u: &plan.Unit{Res: resource.Resource{Name: "widgets", Kind: schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}, Custom: c.custom}}}
		require.Equal(t, c.went, sink.wentMeanwhile(t.Context(), c.err), "%+v", c)
	}
}
