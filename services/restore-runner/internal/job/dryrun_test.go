package job_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/storedplan"
	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/job/engine"
	"github.com/holdfast-io/holdfast/pkg/job/validate"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/job"
)

// availableLocations says that the location is available.
type availableLocations struct{ *locations }

func (l availableLocations) Get(ctx context.Context, name string) (*velerov1.BackupStorageLocation, error) {
	loc, err := l.locations.Get(ctx, name)
	loc.Status.Phase = velerov1.LocationPhaseAvailable
	return loc, err
}

func (l availableLocations) Default(ctx context.Context) (*velerov1.BackupStorageLocation, error) {
	return l.Get(ctx, "default")
}

const configMaps = "/api/v1/namespaces/a/configmaps/"

// newPlanBench has a backup of four ConfigMaps and a cluster with an equal one, and one that differs.
func newPlanBench(t *testing.T) *bench {
	t.Helper()
	b := newBench(t)
	b.config.Validator = &validate.Validator{Reader: b.client, Namespace: "velero", Locations: availableLocations{b.locations}, Clock: b.config.Clock}
	b.config.PlanLifetime = time.Hour
	b.runner = newRunner(b.config)
	b.storeTarball(t, 4)
	b.cluster.Put("/api/v1/namespaces/a", object{"metadata": object{"name": "a"}})
	for name, value := range map[string]string{"c001": "c001", "c002": "another"} {
		b.cluster.Put(configMaps+name, object{"apiVersion": "v1", "kind": "ConfigMap", "data": object{"k": value}, "metadata": object{"name": name, "namespace": "a"}})
	}
	return b
}

func (b *bench) planRestore(t *testing.T, r *velerov1.Restore) (*job.PlannedRestore, map[string]storedplan.Row) {
	t.Helper()
	planned, err := job.New(b.config.Config).PlanRestore(t.Context(), &job.PlanRequest{Restore: r})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, planned.Close()) })
	rows := map[string]storedplan.Row{}
	for row, err := range planned.Rows() {
		require.NoError(t, err)
		require.Positive(t, row.Order)
		row.Order = 0
		rows[row.Name] = *row
	}
	return planned, rows
}

func newPlannedRestore(policy velerov1.PolicyType) *velerov1.Restore {
	return &velerov1.Restore{
		ObjectMeta: metav1.ObjectMeta{Name: "r"},
		Spec:       velerov1.RestoreSpec{BackupName: "b", ExistingResourcePolicy: policy},
	}
}

func TestADryRunSaysWhatARestoreDoesAndChangesNothing(t *testing.T) {
	for policy, differs := range map[velerov1.PolicyType]string{velerov1.PolicyTypeNone: "conflict", velerov1.PolicyTypeUpdate: "update"} {
		b := newPlanBench(t)
		before, keys := b.cluster.Content(), b.store.Keys()
		planned, rows := b.planRestore(t, newPlannedRestore(policy))
		require.Equal(t, before, b.cluster.Content())
		require.Equal(t, []string{layout.PlanHeader(planned.Header.ID), layout.PlanRows(planned.Header.ID)}, added(keys, b.store.Keys()))
		require.Equal(t, map[string]int64{"create": 2, "unchanged": 1, differs: 1}, planned.Header.Counts)
		require.Equal(t, storedplan.Row{Version: "v1", Kind: "ConfigMap", Namespace: "a", Name: "c000", Action: "create"}, rows["c000"])
		require.Equal(t, "unchanged", rows["c001"].Action)
		require.Equal(t, differs, rows["c002"].Action)
		require.Equal(t, []string{"data.k"}, rows["c002"].Fields)

		// what was planned is what happens
		h, err := storedplan.ReadHeader(t.Context(), b.store, planned.Header.ID)
		require.NoError(t, err)
		b.createRestore(t, true, func(r *velerov1.Restore) {
			require.NoError(t, json.Unmarshal(h.Spec, &r.Spec))
			r.Annotations = map[string]string{holdfast.AnnotationPlan: h.ID}
			_, err := b.config.Validator.Restore(t.Context(), r)
			require.NoError(t, err)
		})
		require.NoError(t, b.runner.Run(t.Context(), "r", "uid-r"))
		require.Equal(t, velerov1.RestorePhaseCompleted, b.getRestore(t).Status.Phase)
		require.NotContains(t, b.readGzip(t, layout.RestoreResults("r")), "differs from plan")
	}
}

func added(before, after []string) (out []string) {
	for _, key := range after {
		if !strings.Contains("\n"+strings.Join(before, "\n")+"\n", "\n"+key+"\n") {
			out = append(out, key)
		}
	}
	return out
}

func TestAnOutcomeThatIsNotAsPlannedIsAWarning(t *testing.T) {
	b := newPlanBench(t)
	planned, _ := b.planRestore(t, newPlannedRestore(""))
	b.cluster.Delete(configMaps + "c001")
	b.createRestore(t, true, func(r *velerov1.Restore) {
		r.Spec = newPlannedRestore("").Spec
		r.Annotations = map[string]string{holdfast.AnnotationPlan: planned.Header.ID}
		_, err := b.config.Validator.Restore(t.Context(), r)
		require.NoError(t, err)
	})
	require.NoError(t, b.runner.Run(t.Context(), "r", "uid-r"))
	results := b.readGzip(t, layout.RestoreResults("r"))
	require.Equal(t, 1, strings.Count(results, "differs from plan"), results)
	require.Contains(t, results, "planned: unchanged, now: create")
}

func TestAPlanThatDoesNotFitIsRefused(t *testing.T) {
	for name, change := range map[string]func(*velerov1.Restore){
		"another spec":       func(r *velerov1.Restore) { r.Spec.ExistingResourcePolicy = velerov1.PolicyTypeUpdate },
		"another annotation": func(r *velerov1.Restore) { r.Annotations[holdfast.AnnotationPreserveAddresses] = "true" },
		"expired":            nil,
		"no such plan":       func(r *velerov1.Restore) { r.Annotations[holdfast.AnnotationPlan] = "another" },
		"another, strictly": func(r *velerov1.Restore) {
			r.Spec.ExistingResourcePolicy, r.Annotations[holdfast.AnnotationPlanStrict] = velerov1.PolicyTypeUpdate, "true"
		},
	} {
		b := newPlanBench(t)
		if change == nil {
			change, b.config.PlanLifetime = func(*velerov1.Restore) {}, 0
		}
		planned, _ := b.planRestore(t, newPlannedRestore(""))
		b.createRestore(t, true, func(r *velerov1.Restore) {
			r.Annotations = map[string]string{holdfast.AnnotationPlan: planned.Header.ID}
			change(r)
			_, err := b.config.Validator.Restore(t.Context(), r)
			require.NoError(t, err)
		})
		before := b.cluster.Content()
		require.NoError(t, b.runner.Run(t.Context(), "r", "uid-r"))
		r := b.getRestore(t)
		require.Equal(t, velerov1.RestorePhaseFailedValidation, r.Status.Phase, name)
		require.Contains(t, r.Status.ValidationErrors[0], holdfast.AnnotationPlan+"]", name)
		require.Equal(t, before, b.cluster.Content(), name)
	}
}

func TestAPlanForALocationThatIsReadOnlyIsShownAndNotStored(t *testing.T) {
	b := newPlanBench(t)
	b.locations.mode = velerov1.LocationModeReadOnly
	keys := b.store.Keys()
	planned, rows := b.planRestore(t, newPlannedRestore(""))
	require.ErrorIs(t, planned.Unstored, objectstore.ErrReadOnly)
	require.Len(t, rows, 4)
	require.Equal(t, keys, b.store.Keys())
}

// Who asks for a plan is told why there is none: the text of an error without a code is withheld.
func TestADryRunOfABackupThatCannotBeReadSaysSo(t *testing.T) {
	for text, lose := range map[string]func(*bench){
		"cannot be read": func(b *bench) { b.store.Set(layout.BackupTarball("b"), []byte("no tarball")) },
		"not found":      func(b *bench) { require.NoError(t, b.store.Delete(t.Context(), layout.BackupTarball("b"))) },
	} {
		b := newPlanBench(t)
		lose(b)
		_, err := job.New(b.config.Config).PlanRestore(t.Context(), &job.PlanRequest{Restore: newPlannedRestore("")})
		status, withheld := errgrpc.Status(err)
		require.False(t, withheld, text)
		require.Contains(t, status.Message(), text)
	}
}

func TestADryRunOfASpecThatIsRefusedNamesTheField(t *testing.T) {
	b := newPlanBench(t)
	for field, change := range map[string]func(*velerov1.RestoreSpec){
		"spec.backupName":        func(s *velerov1.RestoreSpec) { s.BackupName = "another" },
		"spec.restoreStatus":     func(s *velerov1.RestoreSpec) { s.RestoreStatus = &velerov1.RestoreStatusSpec{} },
		"spec: spec.includedNam": func(s *velerov1.RestoreSpec) { s.IncludedNamespaces = []string{"nowhere"} },
	} {
		r := newPlannedRestore("")
		change(&r.Spec)
		_, err := job.New(b.config.Config).PlanRestore(t.Context(), &job.PlanRequest{Restore: r})
		require.ErrorContains(t, err, field)
	}
}

func TestAStrictRestoreRefusesAChangedClusterBeforeItChangesAnything(t *testing.T) {
	for name, want := range map[string]velerov1.RestorePhase{"": velerov1.RestorePhaseCompleted, "c001": velerov1.RestorePhaseFailedValidation} {
		b := newPlanBench(t)
		planned, _ := b.planRestore(t, newPlannedRestore(""))
		if name != "" {
			b.cluster.Delete(configMaps + name)
		}
		b.createRestore(t, true, func(r *velerov1.Restore) {
			r.Annotations = map[string]string{holdfast.AnnotationPlan: planned.Header.ID, holdfast.AnnotationPlanStrict: "true"}
			problems, err := b.config.Validator.Restore(t.Context(), r)
			require.NoError(t, err)
			require.Empty(t, problems)
		})
		before := b.cluster.Content()
		require.NoError(t, b.runner.Run(t.Context(), "r", "uid-r"))
		r := b.getRestore(t)
		require.Equal(t, want, r.Status.Phase, "%s %v", r.Status.FailureReason, r.Status.ValidationErrors)
		if name != "" {
			require.Equal(t, []string{"metadata.annotations[holdfast.io/plan-strict]: 1 objects differ from plan " + planned.Header.ID, "ConfigMap a/c001: planned: unchanged, now: create"}, r.Status.ValidationErrors)
			require.Equal(t, before, b.cluster.Content())
		}
	}
}

func TestARestoreThatIsADryRunEndsWithWhatWasFound(t *testing.T) {
	for backup, want := range map[string][]string{"b": {"dry run: nothing was restored", "objects: 1 conflict, 2 create, 1 unchanged"}, "absent": {`spec.backupName: backup "absent" not found`}} {
		b := newPlanBench(t)
		before, keys := b.cluster.Content(), b.store.Keys()
		b.createRestore(t, false, func(r *velerov1.Restore) {
			r.Spec.BackupName = backup
			r.Annotations = map[string]string{holdfast.AnnotationDryRun: "true"}
		})
		require.NoError(t, b.runner.Run(t.Context(), "r", "uid-r"))
		r := b.getRestore(t)
		require.Equal(t, velerov1.RestorePhaseFailedValidation, r.Status.Phase)
		require.Len(t, r.Status.ValidationErrors, len(want))
		for i := range want {
			require.Contains(t, r.Status.ValidationErrors[i], want[i])
		}
		require.Equal(t, before, b.cluster.Content())
		require.Empty(t, r.Finalizers)
		require.Equal(t, []velerov1.RestorePhase{velerov1.RestorePhaseFailedValidation}, b.ended)
		for _, key := range added(keys, b.store.Keys()) {
			require.True(t, strings.HasPrefix(key, layout.PlansDir), key)
		}
	}
}

// hangingLocations hang in Open until release is closed.
type hangingLocations struct {
	*locations
	opening, release chan struct{}
}

func (l hangingLocations) Open(ctx context.Context, loc *velerov1.BackupStorageLocation) (objectstore.Store, error) {
	l.opening <- struct{}{}
	<-l.release
	return l.locations.Open(ctx, loc)
}

func TestARestoreThatIsADryRunWaitsForNoOtherInItsPlace(t *testing.T) {
	b := newPlanBench(t)
	hanging := hangingLocations{b.locations, make(chan struct{}), make(chan struct{})}
	b.config.Locations = hanging
	kind := job.New(b.config.Config)
	var others errgroup.Group
	for range 2 {
		others.Go(func() error {
			planned, err := kind.PlanRestore(t.Context(), &job.PlanRequest{Restore: newPlannedRestore("")})
			if err != nil {
				return err
			}
			return planned.Close()
		})
		<-hanging.opening
	}
	r := newPlannedRestore("")
	r.Annotations = map[string]string{holdfast.AnnotationDryRun: "true"}
	ended, cancel := context.WithCancel(t.Context())
	cancel() // an attempt that waits fails
	decision, err := kind.Admit(ended, r)
	require.NoError(t, err)
	require.Equal(t, engine.NotNow[*velerov1.Restore]("as many dry runs as may be are being made"), decision)
	close(hanging.release)
	require.NoError(t, others.Wait())
}
