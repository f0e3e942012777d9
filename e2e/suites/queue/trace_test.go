package queue

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/site"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/kube"
)

// step is a state of a job, at the revision at which the API server stored it: revisions are one
// order for everything that happens in the cluster.
type step struct {
	revision int64
	phase    string
	position int
}

// trace keeps the steps of every job. Safe for concurrent use.
type trace struct {
	mu    sync.Mutex
	steps map[string][]step // by kind and name
	wrong error
}

// follow watches the jobs of a cluster until the test is done.
func follow(t *testing.T, config *rest.Config) *trace {
	t.Helper()
	tr := &trace{steps: map[string][]step{}}
	informers, err := cache.New(config, cache.Options{Scheme: kube.Scheme(), DefaultNamespaces: map[string]cache.Config{site.Server: {}}})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- informers.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
	for _, kind := range []client.Object{&velerov1.Backup{}, &velerov1.Restore{}} {
		informer, err := informers.GetInformer(t.Context(), kind)
		require.NoError(t, err)
		_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: tr.note, UpdateFunc: func(_, o any) { tr.note(o) }})
		require.NoError(t, err)
	}
	return tr
}

func (tr *trace) note(object any) {
	var s step
	var key, revision string
	switch o := object.(type) {
	case *velerov1.Backup:
		key, revision, s.phase, s.position = "Backup "+o.Name, o.ResourceVersion, string(o.Status.Phase), o.Status.QueuePosition
	case *velerov1.Restore:
		key, revision, s.phase = "Restore "+o.Name, o.ResourceVersion, string(o.Status.Phase)
	default:
		return
	}
	var err error
	s.revision, err = strconv.ParseInt(revision, 10, 64)
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if err != nil {
		tr.wrong = err
	}
	steps := tr.steps[key]
	if n := len(steps); n > 0 && steps[n-1].phase == s.phase && steps[n-1].position == s.position {
		return
	}
	tr.steps[key] = append(steps, s)
}

func (tr *trace) of(job string) []step {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return slices.Clone(tr.steps[job])
}

// at returns the first step of a job in one of the phases; job is "Backup name" or "Restore name".
func (tr *trace) at(job string, phases ...string) (step, bool) {
	for _, s := range tr.of(job) {
		if slices.Contains(phases, s.phase) {
			return s, true
		}
	}
	return step{}, false
}

// reaches waits for a job's first step in one of the phases and returns it.
func (tr *trace) reaches(t *testing.T, job string, phases ...string) step {
	t.Helper()
	var found step
	require.Eventually(t, func() bool {
		var ok bool
		found, ok = tr.at(job, phases...)
		return ok
	}, site.Patience, site.Look, "%s reaches %v", job, phases)
	return found
}

// span is when a job ran, by revisions: from before until after it did anything.
type span struct{ from, begun, end int64 }

func (s span) meets(o span) bool { return s.from < o.end && o.from < s.end }

// together reports that both were in the middle of their work at one moment.
func (s span) together(o span) bool { return s.begun < o.end && o.begun < s.end }

// backupRan returns when a backup held its place: from ReadyToStart until past InProgress.
func (tr *trace) backupRan(t *testing.T, name string) span {
	t.Helper()
	job := "Backup " + name
	return span{
		from:  tr.reaches(t, job, "ReadyToStart").revision,
		begun: tr.reaches(t, job, "InProgress").revision,
		end:   tr.reaches(t, job, "WaitingForPluginOperations", "Finalizing", "Completed", "PartiallyFailed", "Failed").revision,
	}
}

// restoreRan returns when a restore was in progress.
func (tr *trace) restoreRan(t *testing.T, name string) span {
	t.Helper()
	job := "Restore " + name
	begun := tr.reaches(t, job, "InProgress").revision
	return span{from: begun, begun: begun, end: tr.reaches(t, job, "WaitingForPluginOperations", "Finalizing", "Completed", "PartiallyFailed", "Failed").revision}
}
