package finalize

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/archive/storedplan"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
)

// Objects that actions bring may be read outside the cut: those of the plan are there, and others are no difference.
func TestObjectsThatActionsBringAreComparedWithThePlan(t *testing.T) {
	store := memstore.New()
	planned := storedplan.NewWriter(t.TempDir())
	require.NoError(t, planned.Add(storedplan.Row{Version: "v1", Kind: "ServiceAccount", Namespace: "a", Name: "named", Action: storedplan.ActionStore}))
	require.NoError(t, planned.Sort())
	require.NoError(t, planned.Store(t.Context(), store, &storedplan.Header{ID: "p", Kind: storedplan.KindBackup, Spec: json.RawMessage("{}")}))
	require.NoError(t, planned.Close())

	s := &State{Job: Job{Store: store, Dir: t.TempDir(), Backup: &velerov1.Backup{}}}
	s.Backup.Status.StartTimestamp = &metav1.Time{Time: time.Unix(0, 0)}
	c := newPlanComparison(s, "p")
	defer c.close()
	for _, name := range []string{"named", "made"} {
		require.NoError(t, c.addStored(manifest.Key{Kind: "v1/ServiceAccount", Namespace: "a", Name: name}, true))
	}
	_, err := c.compareRows(t.Context())
	require.NoError(t, err)
	require.Equal(t, "none", s.Contents.PlanDifferences)
}
