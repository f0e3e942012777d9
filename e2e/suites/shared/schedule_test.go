package shared

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/gate"
	"github.com/holdfast-io/holdfast/e2e/harness/site"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// nightly is the name of the schedule that both clusters have, and of the namespace it backs up.
const nightly = "nightly"

// createSchedules gives both clusters the same schedule, due at every full minute. Neither can commit
// before release: otherwise a cluster that is late could find the other's finished backup in the
// bucket and take it for a known one.
func (p *clusterPair) createSchedules(t *testing.T) (release func()) {
	t.Helper()
	var holds []*gate.Hold
	for _, m := range p.members {
		hold := m.gate.Hold(func(r gate.Request) bool {
			return gate.Writes("backups/"+nightly)(r) && gate.Writes("/velero-backup.json")(r)
		})
		t.Cleanup(hold.Release)
		holds = append(holds, hold)
	}
	for _, m := range p.members {
		require.NoError(t, m.Client.Create(t.Context(), &velerov1.Schedule{
			ObjectMeta: metav1.ObjectMeta{Namespace: site.Server, Name: nightly},
			Spec: velerov1.ScheduleSpec{Schedule: "* * * * *", Template: velerov1.BackupSpec{
				StorageLocation: p.s3.Location, IncludedNamespaces: []string{nightly},
			}},
		}))
	}
	return func() {
		for _, hold := range holds {
			hold.Release()
		}
	}
}

// oneSchedule requires that of the backups of one slot one cluster's gets the name.
func (p *clusterPair) oneSchedule(t *testing.T) {
	name := ""
	require.Eventually(t, func() bool {
		first, second := p.members[0].slotNames(t), p.members[1].slotNames(t)
		for slot := range first {
			if second[slot] {
				name = slot
			}
		}
		return name != ""
	}, site.Patience, site.Look, "both clusters make the backup of one slot")
	for _, m := range p.members {
		require.NoError(t, m.Client.Delete(t.Context(), &velerov1.Schedule{ObjectMeta: metav1.ObjectMeta{Namespace: site.Server, Name: nightly}}))
	}
	p.release()
	p.requireWinner(t, p.s3, name)
}

// slotNames returns the names of the schedule's backups.
func (m *sharedCluster) slotNames(t *testing.T) map[string]bool {
	t.Helper()
	var list velerov1.BackupList
	require.NoError(t, m.Client.List(t.Context(), &list, client.InNamespace(site.Server), client.MatchingLabels{velerov1.LabelScheduleName: nightly}))
	names := map[string]bool{}
	for _, b := range list.Items {
		names[b.Name] = true
	}
	return names
}
