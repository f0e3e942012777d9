package operations

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/e2e/harness/site"
	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/itemoperation"
	operationv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/operation/v1"
)

// TestOperations shares one cluster among all scenarios. The quiet ones run at once: what one
// backup waits for is nothing to another.
func TestOperations(t *testing.T) {
	b := newBed(t)
	began := time.Now()
	quiet := t.Run("at once", func(t *testing.T) {
		for name, run := range map[string]func(*testing.T){
			"many": b.testMany, "stored again": b.storedAgain, "cancelled": b.testCancelled, "restored": b.testRestored, "by command": b.byCommand,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				run(t)
			})
		}
	})
	t.Logf("at once: %.1f s", time.Since(began).Seconds())
	if !quiet {
		return // what follows would not start from a sound state
	}
	for _, scenario := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"a runner dies in a Start", b.runnerDies}, {"everything dies while operations run", b.everythingDies},
		{"the home of an operation dies", b.homeDies}, {"the home of an operation drains", b.homeDrains},
	} {
		began := time.Now()
		if !t.Run(scenario.name, scenario.run) {
			return
		}
		t.Logf("%s: %.1f s", scenario.name, time.Since(began).Seconds())
	}
}

// longestOperation is how long the longest operation of many takes.
func longestOperation() time.Duration {
	if os.Getenv("LONG_TESTS") != "" {
		return 20 * time.Second
	}
	return 6 * time.Second
}

// endsSoon wants a backup to end within two polls and five seconds of the moment when its longest
// operation really did. A machine on which another backup of the same objects took longer than those
// five seconds has that long.
func (b *bed) endsSoon(t *testing.T, name string, released time.Time) {
	t.Helper()
	ends := func(name string) time.Time {
		return b.History.Reaches(t, "Backup", name, string(velerov1.BackupPhaseCompleted)).At
	}
	last, beside := b.controller.endOf(name), "beside-"+name
	if inside := b.calls.releasedSince(name).Add(longestOperation()); inside.After(last) {
		last = inside
	}
	took := ends(beside).Sub(b.History.Of("Backup", beside)[0].At)
	late, limit := ends(name).Sub(last), 2*pollInterval+max(5*time.Second, took)
	t.Logf("ended %.1f s after the operations began, %.1f s after the end of the longest of them, at most %.1f s; the backup beside it took %.1f s",
		ends(name).Sub(released).Seconds(), late.Seconds(), limit.Seconds(), took.Seconds())
	require.LessOrEqual(t, late, limit, "the end comes after the last operation's")
}

// testMany backs up two hundred objects, a hundred of which have operations, half of them in the plugin's
// process. Collecting waits for none of them, the place in the queue is free meanwhile, and the end comes soon after the last operation's.
func (b *bed) testMany(t *testing.T) {
	const outside, operations = 50, 100
	b.controller.holdOperations("many")
	b.Estate(t, "many", 75, 200)
	for i := range outside {
		name, o := fmt.Sprintf("work-%02d", i), operationOrder{Seconds: longestOperation().Seconds() * float64(i) / (outside - 1)}
		b.createInsideObject(t, "many", fmt.Sprintf("inside-%02d", i), operationOrder{Seconds: o.Seconds, Start: held})
		if i%5 == 0 {
			b.createVendorObject(t, "many", name, o)
		} else {
			b.createOwnObject(t, "many", name, o)
		}
	}
	b.Backup(t, "many", b.bucket, "many")
	waiting := b.awaitWaiting(t, "many", velerov1.BackupPhaseWaitingForPluginOperations)
	require.Equal(t, operations, waiting.Status.BackupItemOperationsAttempted)
	require.Zero(t, waiting.Status.BackupItemOperationsCompleted+waiting.Status.BackupItemOperationsFailed)
	b.Namespace(t, "beside")
	for _, namespace := range []string{"beside", "many"} {
		spec := velerov1.BackupSpec{StorageLocation: b.bucket.Location, IncludedNamespaces: []string{namespace}, ExcludedResources: []string{"secrets", "configmaps", "serviceaccounts"}}
		b.createBackup(t, "beside-"+namespace, spec)
		require.Equal(t, velerov1.BackupPhaseCompleted, b.BackupEnds(t, "beside-"+namespace).Status.Phase, "the only place is free")
	}
	b.awaitSummary(t, "many", operations)
	answer, err := b.monitor.ListOperations(t.Context(), &operationv1.ListOperationsRequest{Owner: &operationv1.ListOperationsRequest_Backup{Backup: "many"}})
	require.NoError(t, err)
	require.Len(t, answer.GetOperations(), operations)

	b.calls.releaseOperations(t, "many")
	released := b.controller.releaseHeld("many")
	require.Eventually(t, func() bool { return b.getBackup(t, "many").Status.Phase.Terminal() }, site.Patience, site.Look, "the end comes after the last operation's")
	b.endsSoon(t, "many", released)
	b.awaitEnd(t, "many", velerov1.BackupPhaseCompleted, operations, 0)
	b.releaseOperations(t, "many")
	file := b.readOperations(t, "many")
	require.Len(t, file, operations)
	for _, w := range b.worksOf(t, "many") {
		requireCompleted(t, file, &w)
	}
	inside := 0
	for item, o := range file {
		if o.Spec.BackupAction == insideAction {
			require.Equal(t, itemoperation.PhaseCompleted, o.Status.Phase, "%s: %s", item, o.Status.Error)
			inside++
		}
	}
	require.Equal(t, operations-outside, inside)
	b.begunOnce(t, "many", operations)
}

// begunOnce requires one Start for each of n items.
func (b *bed) begunOnce(t *testing.T, backup string, n int) {
	t.Helper()
	starts := b.calls.callsOf(t, "start", backup)
	require.Len(t, starts, n)
	for item, calls := range starts {
		require.Len(t, calls, 1, "%s is begun once", item)
	}
}

// createBackup makes a backup.
func (b *bed) createBackup(t *testing.T, name string, spec velerov1.BackupSpec) {
	t.Helper()
	backup := &velerov1.Backup{Spec: spec}
	backup.Namespace, backup.Name = site.Server, name
	require.NoError(t, b.Client.Create(t.Context(), backup))
}

// awaitSummary waits until the Backup has the summary of its running operations.
func (b *bed) awaitSummary(t *testing.T, name string, total int) {
	t.Helper()
	var summary struct {
		Total, Completed, Failed int
		Running                  []struct{ Action, ID, Phase string }
	}
	require.Eventually(t, func() bool {
		text, ok := b.getBackup(t, name).Annotations[holdfast.AnnotationOperations]
		if !ok {
			return false
		}
		require.NoError(t, json.Unmarshal([]byte(text), &summary))
		return len(summary.Running) > 0
	}, site.Patience, site.Look, "%s tells of its operations", name)
	require.Equal(t, total, summary.Total)
	require.Zero(t, summary.Completed+summary.Failed)
	require.LessOrEqual(t, len(summary.Running), 10)
	for _, running := range summary.Running {
		require.Contains(t, []string{ownAction, vendorAction, insideAction}, running.Action)
		if running.Action != insideAction {
			require.Contains(t, running.ID, name+"/work-")
		}
	}
}

// releaseOperations requires that no process held the backup while it waited.
func (b *bed) releaseOperations(t *testing.T, name string) {
	t.Helper()
	free := false
	for _, step := range b.History.Of("Backup", name) {
		free = free || step.Phase == string(velerov1.BackupPhaseWaitingForPluginOperations) && step.Holder == "" && step.Epoch > 0
	}
	require.True(t, free, "the claim is let go: %v", b.History.Of("Backup", name))
}
