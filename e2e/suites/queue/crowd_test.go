package queue

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/site"
	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

const (
	crowd  = 200 // backups
	sets   = 50  // of namespaces, four backups each
	spaces = 24  // namespaces
	atOnce = 8
)

// namespaceSet returns the namespaces of one set: one, two or three of them.
func namespaceSet(i int) []string {
	var names []string
	for n := range 1 + i%3 {
		names = append(names, fmt.Sprintf("crowd-%02d", (i*(n+1)+5*n)%spaces))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// crowdMember is one backup of the crowd, as it ran.
type crowdMember struct {
	name     string
	set      []string
	sequence int64
	holder   string
	span
}

func (m *crowdMember) overlapsWith(o *crowdMember) bool {
	return slices.ContainsFunc(m.set, func(ns string) bool { return slices.Contains(o.set, ns) })
}

// TestACrowd submits two hundred backups of fifty overlapping sets of namespaces at once to three
// queue-schedulers and three backup-runners, and kills a scheduler on the way. All complete; by the
// revisions at which the API server stored their phases no two that overlap ever ran at once and
// they kept their order, while others ran side by side.
func TestACrowd(t *testing.T) {
	b := &bed{Site: site.Start(t, site.Config{
		Counts: map[string]int{"queue-scheduler": 3, "backup-runner": 3},
		Args: map[string][]string{
			"queue-scheduler": {"--concurrent-backups", strconv.Itoa(atOnce), "--duty-timeout", "2s"}, "backup-runner": {"--jobs", "4"},
		},
	})}
	var dir string
	b.bucket, dir = site.FileBucket(t, "crowd")
	b.ReachFiles(t, dir, b.bucket)
	for i := range spaces {
		b.createNamespace(t, fmt.Sprintf("crowd-%02d", i))
	}
	began := time.Now()
	b.submitCrowd(t)
	b.awaitEnded(t, crowd/4)
	b.Fleet.Of("queue-scheduler")[0].Kill()
	b.awaitEnded(t, crowd)
	t.Logf("%d backups in %.1f s", crowd, time.Since(began).Seconds())
	b.checkCrowd(t)
}

func crowdName(i int) string { return fmt.Sprintf("crowd-%03d", i) }

func (b *bed) submitCrowd(t *testing.T) {
	t.Helper()
	var group errgroup.Group
	group.SetLimit(16)
	for i := range crowd {
		group.Go(func() error {
			return b.Client.Create(t.Context(), &velerov1.Backup{
				ObjectMeta: metav1.ObjectMeta{Namespace: site.Server, Name: crowdName(i)},
				Spec:       velerov1.BackupSpec{StorageLocation: b.bucket.Location, IncludedNamespaces: namespaceSet(i % sets)},
			})
		})
	}
	require.NoError(t, group.Wait())
}

// awaitEnded waits until so many backups are over.
func (b *bed) awaitEnded(t *testing.T, count int) {
	t.Helper()
	require.Eventually(t, func() bool {
		over := 0
		for i := range crowd {
			if _, ok := b.History.At("Backup", crowdName(i), "Completed", "PartiallyFailed", "Failed", "FailedValidation"); ok {
				over++
			}
		}
		return over >= count
	}, site.Patience, 4*site.Look, "%d backups end", count)
}

// checkCrowd looks at how the crowd ran.
func (b *bed) checkCrowd(t *testing.T) {
	t.Helper()
	members := make([]*crowdMember, crowd)
	holders := map[string]int{}
	for i := range members {
		backup := &velerov1.Backup{}
		require.NoError(t, b.Client.Get(t.Context(), client.ObjectKey{Namespace: site.Server, Name: crowdName(i)}, backup))
		require.Equal(t, velerov1.BackupPhaseCompleted, backup.Status.Phase, "%s: %s", backup.Name, backup.Status.FailureReason)
		m := &crowdMember{name: backup.Name, set: namespaceSet(i % sets), span: b.backupRan(t, backup.Name)}
		var err error
		m.sequence, err = strconv.ParseInt(backup.Annotations[holdfast.AnnotationQueueSequence], 10, 64)
		require.NoError(t, err)
		for _, s := range b.History.Of("Backup", backup.Name) {
			if s.Holder != "" {
				m.holder = s.Holder
			}
		}
		holders[m.holder]++
		members[i] = m
	}
	slices.SortFunc(members, func(a, b *crowdMember) int { return int(a.sequence - b.sequence) })
	overlapping, disjoint, together := 0, 0, 0
	for i, m := range members {
		for _, o := range members[:i] {
			switch {
			case m.overlapsWith(o):
				overlapping++
				require.False(t, m.meetsSpan(o.span), "%s %v at %+v beside %s %v at %+v", m.name, m.set, m.span, o.name, o.set, o.span)
				require.Greater(t, m.from, o.from, "%s %v passed %s %v", m.name, m.set, o.name, o.set)
			default:
				disjoint++
				if m.runsTogether(o.span) {
					together++
				}
			}
		}
	}
	most := mostAtOnce(members)
	t.Logf("%d pairs overlap; of %d that do not %d ran at the same moment, %d at most; by runners: %v", overlapping, disjoint, together, most, holders)
	require.LessOrEqual(t, most, atOnce)
	require.GreaterOrEqual(t, most, 3, "hardly anything ran side by side")
	require.Greater(t, together, crowd/2)
	require.Greater(t, overlapping, crowd)
	require.Len(t, holders, 3, "every runner took part")
}

// mostAtOnce returns how many held a place at one moment.
func mostAtOnce(members []*crowdMember) int {
	type edge struct {
		revision int64
		change   int
	}
	var edges []edge
	for _, m := range members {
		edges = append(edges, edge{m.from, 1}, edge{m.end, -1})
	}
	slices.SortFunc(edges, func(a, b edge) int { return int(a.revision - b.revision) })
	now, most := 0, 0
	for _, e := range edges {
		now += e.change
		most = max(most, now)
	}
	return most
}
