package job

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/storedplan"
	"github.com/holdfast-io/holdfast/pkg/job/engine"
	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// planBackup makes a dry run of a backup of everything, and returns what it found with its rows.
func (w *world) planBackup(t *testing.T) (*Planned, []storedplan.Row) {
	t.Helper()
	w.PlanLifetime = time.Hour
	b := &velerov1.Backup{}
	b.Namespace, b.Name, b.Spec.StorageLocation = namespace, "b1", "default"
	var rows []storedplan.Row
	found, err := New(w.Config).PlanBackup(t.Context(), &DryRun{Backup: b, Namespaces: []string{"*"}, Messages: []string{"it would wait"},
		Row: func(r *storedplan.Row) error { rows = append(rows, *r); return nil }})
	require.NoError(t, err)
	return found, rows
}

func TestADryRunStoresItsPlanAlone(t *testing.T) {
	w := newWorld(t)
	found, rows := w.planBackup(t)
	require.Len(t, rows, 51)
	id := found.Header.ID
	require.ElementsMatch(t, []string{layout.PlanHeader(id), layout.PlanRows(id)}, w.store.Keys())
	h, err := storedplan.ReadHeader(t.Context(), w.store, id)
	require.NoError(t, err)
	require.Equal(t, storedplan.KindBackup, h.Kind)
	require.Contains(t, string(h.Spec), `"storageLocation":"default"`)
	require.Equal(t, time.Hour, h.Expires.Sub(h.Created))
	require.Equal(t, map[string]int64{"store": 51}, h.Counts)
	require.Equal(t, []string{"it would wait"}, h.Messages)
	require.Empty(t, found.SizesFrom)

	// Once a backup like it has ended there are sizes.
	b := w.admitBackup(t, "b0")
	require.NoError(t, w.Run(t.Context(), "b0", b.UID))
	found, _ = w.planBackup(t)
	require.Equal(t, "b0", found.SizesFrom)
	require.Positive(t, found.Sizes["v1/ConfigMap"])

	w.Locations = unreachable{locations{w.store}}
	found, rows = w.planBackup(t)
	require.ErrorContains(t, found.Unstored, "no such host")
	require.Len(t, rows, 51, "what it found is told all the same")
	require.Equal(t, map[string]int64{"store": 51}, found.Header.Counts)
}

func TestABackupTellsHowItDiffersFromItsPlan(t *testing.T) {
	for name, tt := range map[string]struct {
		changed, strict bool
		id              string // instead of that of the plan
		phase           velerov1.BackupPhase
		differences     string
		log             []string
	}{
		"same":              {phase: velerov1.BackupPhaseCompleted, differences: "none", log: []string{"The backup holds what plan "}},
		"same, strict":      {strict: true, phase: velerov1.BackupPhaseCompleted, differences: "none"},
		"changed":           {changed: true, phase: velerov1.BackupPhaseCompleted, differences: "2 objects were added since, 1 are gone", log: []string{"2 objects were added since, 1 are gone: ConfigMap a/cm-07: planned: store, now: nothing; ConfigMap a/new-1: not in the plan, now: store; "}},
		"changed, strict":   {changed: true, strict: true, phase: velerov1.BackupPhaseFailed},
		"plan gone":         {id: "gone", phase: velerov1.BackupPhaseCompleted, differences: "unknown: no such plan: gone", log: []string{"Failed to compare the backup with its plan"}},
		"plan gone, strict": {id: "gone", strict: true, phase: velerov1.BackupPhaseFailed},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.ConsistentCut = false // objects and Backups are of different servers here
			found, _ := w.planBackup(t)
			if tt.changed {
				w.api.Add("configmaps", kubetest.Object{Namespace: "a", Name: "new-1"}, kubetest.Object{Namespace: "a", Name: "new-2"})
				w.api.Delete("/api/v1/namespaces/a/configmaps/cm-07")
			}
			b := w.admitBackup(t, "b1", func(b *velerov1.Backup) {
				b.Annotations = map[string]string{holdfast.AnnotationPlan: found.Header.ID}
				if tt.id != "" {
					b.Annotations[holdfast.AnnotationPlan] = tt.id
				}
				if tt.strict {
					b.Annotations[holdfast.AnnotationPlanStrict] = "true"
				}
			})
			require.NoError(t, w.Run(t.Context(), "b1", b.UID))
			got := w.readBackup(t, b)
			require.Equal(t, tt.phase, got.Status.Phase, got.Status.FailureReason)
			if tt.phase == velerov1.BackupPhaseFailed {
				require.Contains(t, got.Status.FailureReason, "plan")
				require.NotContains(t, w.store.Keys(), layout.BackupManifest("b1"), "nothing is committed")
				return
			}
			require.Equal(t, tt.differences, got.Annotations[holdfast.AnnotationPlanDifferences])
			require.Zero(t, got.Status.Warnings)
			log := w.readDocument(t, layout.BackupLog("b1"))
			for _, text := range tt.log {
				require.Contains(t, log, text)
			}
		})
	}
}

func TestABackupThatIsADryRunEndsWithWhatWasFound(t *testing.T) {
	w := newWorld(t)
	w.PlanLifetime = time.Hour
	for name, tt := range map[string]struct {
		namespaces string
		unknown    bool // to validation
		want       []string
	}{
		"planned":   {namespaces: `["*"]`, want: []string{"dry run: nothing was backed up", "objects: 51 store", "kinds: 50 v1/ConfigMap, 1 v1/Namespace", "volumes: data of 0 would be taken, of 0 not", "it would wait"}},
		"damaged":   {namespaces: `x`, want: []string{"metadata.annotations[holdfast.io/namespaces]: "}},
		"unchecked": {namespaces: `["*"]`, unknown: true},
	} {
		before := w.store.Keys()
		b := &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-" + name)}}
		b.Spec.StorageLocation, b.Status.ValidationErrors = "default", []string{"it would wait"}
		b.Annotations = map[string]string{holdfast.AnnotationDryRun: "true", holdfast.AnnotationNamespaces: tt.namespaces, holdfast.AnnotationValidated: string(b.UID)}
		if tt.unknown {
			b.Annotations[holdfast.AnnotationValidated] = "uid-of-another"
		}
		require.NoError(t, w.client.Create(t.Context(), b))
		require.NoError(t, w.Run(t.Context(), name, b.UID))
		got := w.readBackup(t, b)
		if tt.unknown {
			require.True(t, got.Status.Phase.IsNew(), "queue-scheduler comes first")
			continue
		}
		require.Equal(t, velerov1.BackupPhaseFailedValidation, got.Status.Phase)
		require.Len(t, got.Status.ValidationErrors, len(tt.want))
		for i := range tt.want {
			require.Contains(t, got.Status.ValidationErrors[i], tt.want[i])
		}
		require.Empty(t, got.Finalizers)
		require.NotContains(t, got.Annotations, holdfast.AnnotationClaim)
		for _, key := range w.store.Keys() {
			require.True(t, slices.Contains(before, key) || strings.HasPrefix(key, layout.PlansDir), key)
		}
	}
}

// hangingLocations hang in Open until release is closed.
type hangingLocations struct {
	locations
	opening, release chan struct{}
}

func (l hangingLocations) Open(ctx context.Context, bsl *velerov1.BackupStorageLocation) (objectstore.Store, error) {
	l.opening <- struct{}{}
	<-l.release
	return l.locations.Open(ctx, bsl)
}

func TestABackupThatIsADryRunWaitsForNoOtherInItsPlace(t *testing.T) {
	w := newWorld(t)
	hanging := hangingLocations{locations{w.store}, make(chan struct{}), make(chan struct{})}
	w.Locations = hanging
	kind := New(w.Config)
	b := &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "b1", UID: "uid-b1"}}
	b.Spec.StorageLocation = "default"
	b.Annotations = map[string]string{holdfast.AnnotationDryRun: "true", holdfast.AnnotationNamespaces: `["*"]`, holdfast.AnnotationValidated: "uid-b1"}
	var others errgroup.Group
	for _, plan := range []func() error{
		func() error { _, err := kind.Admit(t.Context(), b); return err },
		func() error {
			_, err := kind.PlanBackup(t.Context(), &DryRun{Backup: b, Namespaces: []string{"*"}})
			return err
		},
	} {
		others.Go(plan)
		<-hanging.opening
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel() // an attempt that waits fails
	decision, err := kind.Admit(ended, b)
	require.NoError(t, err)
	require.Equal(t, engine.NotNow[*velerov1.Backup]("as many dry runs as may be are being made"), decision)
	_, err = kind.PlanBackup(ended, &DryRun{Backup: b})
	require.ErrorIs(t, err, context.Canceled)
	close(hanging.release)
	require.NoError(t, others.Wait())
}
