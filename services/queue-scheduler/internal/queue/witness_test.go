package queue_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
	"github.com/holdfast-io/holdfast/pkg/kube"
)

// seen is a job as the API server has it.
type seen struct {
	name       string
	kind       string
	namespaces []string
	running    bool // a runner has it, or may take it now
	over       bool
}

func (th *theatre) seenJobs() map[types.UID]seen {
	jobs := map[types.UID]seen{}
	backups, restores := &velerov1.BackupList{}, &velerov1.RestoreList{}
	require.NoError(th.t, th.c.List(th.t.Context(), backups))
	require.NoError(th.t, th.c.List(th.t.Context(), restores))
	for _, b := range backups.Items {
		p := b.Status.Phase
		jobs[b.UID] = seen{b.Name, ledger.KindBackup, b.Spec.IncludedNamespaces,
			p == velerov1.BackupPhaseReadyToStart || p == velerov1.BackupPhaseInProgress, p == velerov1.BackupPhaseCompleted}
	}
	for _, r := range restores.Items {
		p := r.Status.Phase
		jobs[r.UID] = seen{r.Name, ledger.KindRestore, r.Spec.IncludedNamespaces, p == velerov1.RestorePhaseInProgress, p == velerov1.RestorePhaseCompleted}
	}
	return jobs
}

// checkInvariants checks after every write that admitted jobs which have not ended never overlap and keep
// the limits, that what runs is admitted, and that the ledger has every such job.
func (th *theatre) checkInvariants(limits ledger.Limits) {
	th.t.Helper()
	jobs := th.seenJobs()
	entries, err := ledger.New(th.c, th.c, "velero").List(th.t.Context())
	require.NoError(th.t, err)
	var now []types.UID
	count := map[string]int{}
	for i, e := range entries {
		now = append(now, e.UID)
		if jobs[e.UID].over {
			continue // left by a paused replica, or about to be released
		}
		count[e.Kind]++
		for _, o := range entries[:i] {
			require.True(th.t, jobs[o.UID].over || len(ledger.Overlap(e.Namespaces, o.Namespaces)) == 0, "%s beside %s", e.Name, o.Name)
		}
	}
	require.LessOrEqual(th.t, count[ledger.KindBackup], limits.Backups)
	require.LessOrEqual(th.t, count[ledger.KindRestore], limits.Restores)
	for uid, j := range jobs {
		require.True(th.t, !j.running || slices.Contains(now, uid), "%s runs and is not admitted", j.name)
	}
	for _, uid := range th.listed {
		require.True(th.t, jobs[uid].over || slices.Contains(now, uid), "%s was taken out of the ledger", jobs[uid].name)
	}
	th.listed, th.admitted = now, max(th.admitted, len(now))
}

// runRunners is what runners do, one random move at a time; it returns how many jobs are over.
func (th *theatre) runRunners() (over int) {
	th.t.Helper()
	entries, err := ledger.New(th.c, th.c, "velero").List(th.t.Context())
	require.NoError(th.t, err)
	for _, j := range th.seenJobs() {
		if j.over {
			over++
		}
	}
	if len(entries) == 0 {
		return over
	}
	e := entries[th.random.IntN(len(entries))]
	if e.Kind == ledger.KindRestore {
		r := &velerov1.Restore{}
		r.Namespace, r.Name = e.Namespace, e.Name
		require.NoError(th.t, kube.Update(th.t.Context(), th.c, th.c, r, func(r *velerov1.Restore) error {
			switch {
			case r.Status.Phase.IsNew():
				r.Status.Phase = velerov1.RestorePhaseInProgress
			case r.Status.Phase == velerov1.RestorePhaseInProgress:
				r.Status.Phase = velerov1.RestorePhaseCompleted
			}
			return nil
		}))
		return over
	}
	b := &velerov1.Backup{}
	b.Namespace, b.Name = e.Namespace, e.Name
	require.NoError(th.t, kube.Update(th.t.Context(), th.c, th.c, b, func(b *velerov1.Backup) error {
		switch b.Status.Phase {
		case velerov1.BackupPhaseReadyToStart:
			b.Status.Phase = velerov1.BackupPhaseInProgress
		case velerov1.BackupPhaseInProgress:
			b.Status.Phase = velerov1.BackupPhaseCompleted
		}
		return nil
	}))
	return over
}

// The promise under pauses: two schedulers in every order of their calls, each stopped between any
// two of them for up to hundreds of the other's, answers and swaps lost, caches old. Never two
// overlapping, nothing stuck, nothing taken out.
func TestAPausedSchedulerAdmitsNothing(t *testing.T) {
	limits := ledger.Limits{Backups: 2, Restores: 1}
	most := 0
	for seed := range uint64(10) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			th := newTheatre(t, seed, 2)
			const backups, restores = 5, 2
			for i := range backups {
				b := &velerov1.Backup{ObjectMeta: objectMeta(fmt.Sprintf("b%d", i), i)}
				b.Spec.IncludedNamespaces = []string{fmt.Sprintf("ns%d", 1+i%3), fmt.Sprintf("x%d", i)}
				require.NoError(t, th.c.Create(t.Context(), b))
			}
			for i := range restores {
				r := &velerov1.Restore{ObjectMeta: objectMeta(fmt.Sprintf("r%d", i), i)}
				r.Spec.BackupName, r.Spec.IncludedNamespaces = "x", []string{fmt.Sprintf("ns%d", 1+i)}
				require.NoError(t, th.c.Create(t.Context(), r))
			}
			th.playPasses(limits, backups+restores)
			most = max(most, th.admitted)
		})
	}
	require.Greater(t, most, 1, "no two jobs were ever admitted together: the test shows nothing")
}
