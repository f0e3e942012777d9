package validate_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/validate"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/objectstore/location"
)

var now = time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC)

func newStorageLocation(name string, change ...func(*velerov1.BackupStorageLocation)) *velerov1.BackupStorageLocation {
	b := &velerov1.BackupStorageLocation{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: name}}
	b.Status.Phase = velerov1.LocationPhaseAvailable
	for _, f := range change {
		f(b)
	}
	return b
}

func isDefault(b *velerov1.BackupStorageLocation) { b.Spec.Default = true }

func newNamespace(name string, labels map[string]string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
}

func newValidator(t *testing.T, objects ...client.Object) *validate.Validator {
	t.Helper()
	return validatorOver(fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(objects...).Build())
}

func validatorOver(c client.Client) *validate.Validator {
	return &validate.Validator{
		Reader: c, Namespace: "velero", Locations: location.New(c, "velero"), Clock: clocktesting.NewFakePassiveClock(now),
		Version: func(context.Context) (*version.Info, error) {
			return &version.Info{GitVersion: "v1.36.3", Major: "1", Minor: "36"}, nil
		},
		Defaults: validate.Defaults{
			TTL: 720 * time.Hour, ItemOperationTimeout: 4 * time.Hour, CSISnapshotTimeout: 10 * time.Minute,
			ResourceTimeout: 10 * time.Minute, Location: "default",
		},
	}
}

func newBackup(spec velerov1.BackupSpec) *velerov1.Backup {
	return &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "b", UID: "u"}, Spec: spec}
}

// A backup that says whether its volumes are taken by file-system backup has its way.
func TestTheServersDefaultOfFileSystemBackups(t *testing.T) {
	v := newValidator(t, newStorageLocation("main", isDefault))
	v.Defaults.VolumesToFsBackup = true
	for name, tc := range map[string]struct {
		spec velerov1.BackupSpec
		want bool
	}{
		"silent": {velerov1.BackupSpec{}, true}, "on": {velerov1.BackupSpec{DefaultVolumesToFsBackup: ptr.To(true)}, true},
		"off": {velerov1.BackupSpec{DefaultVolumesToFsBackup: ptr.To(false)}, false},
	} {
		b := newBackup(tc.spec)
		problems, err := v.Backup(t.Context(), b)
		require.NoError(t, err)
		require.Empty(t, problems)
		require.Equal(t, ptr.To(tc.want), b.Spec.DefaultVolumesToFsBackup, name)
	}
}

// What Velero's server writes back on a backup with an empty spec.
func TestBackupIsCompletedAsVeleroDoes(t *testing.T) {
	v := newValidator(t, newStorageLocation("main", isDefault), newNamespace("kept", nil), newNamespace("secret", map[string]string{"velero.io/exclude-from-backup": "true"}))
	b := newBackup(velerov1.BackupSpec{})
	problems, err := v.Backup(t.Context(), b)
	require.NoError(t, err)
	require.Empty(t, problems)
	require.Equal(t, velerov1.BackupSpec{
		StorageLocation: "main", TTL: metav1.Duration{Duration: 720 * time.Hour},
		CSISnapshotTimeout: metav1.Duration{Duration: 10 * time.Minute}, ItemOperationTimeout: metav1.Duration{Duration: 4 * time.Hour},
		DefaultVolumesToFsBackup: ptr.To(false), SnapshotMoveData: ptr.To(false), VolumeGroupSnapshotLabelKey: "velero.io/volume-group",
		IncludedNamespaces: []string{"*"}, ExcludedNamespaces: []string{"secret"},
		ExcludedClusterScopedResources:   []string{"volumesnapshotcontents.snapshot.storage.k8s.io"},
		ExcludedNamespaceScopedResources: []string{"volumesnapshots.snapshot.storage.k8s.io"},
	}, b.Spec)
	require.Equal(t, now.Add(720*time.Hour), b.Status.Expiration.Time)
	require.Equal(t, 1, b.Status.Version)
	require.Equal(t, map[string]string{"velero.io/storage-location": "main"}, b.Labels)
	require.Equal(t, map[string]string{
		"velero.io/source-cluster-k8s-gitversion": "v1.36.3", "velero.io/source-cluster-k8s-major-version": "1",
		"velero.io/source-cluster-k8s-minor-version": "36", "velero.io/resource-timeout": "10m0s",
	}, b.Annotations)

	again := b.DeepCopy()
	problems, err = v.Backup(t.Context(), again)
	require.NoError(t, err)
	require.Empty(t, problems)
	require.Equal(t, b, again, "completing twice changes nothing")
}

// A backup keeps the ttl of its spec, and expires by it: the default would delete one that is to be
// kept for longer.
func TestABackupExpiresByItsOwnTTL(t *testing.T) {
	v := newValidator(t, newStorageLocation("main", isDefault))
	b := newBackup(velerov1.BackupSpec{TTL: metav1.Duration{Duration: 8760 * time.Hour}})
	problems, err := v.Backup(t.Context(), b)
	require.NoError(t, err)
	require.Empty(t, problems)
	require.Equal(t, 8760*time.Hour, b.Spec.TTL.Duration)
	require.Equal(t, now.Add(8760*time.Hour), b.Status.Expiration.Time)
}

// Only the value "true" excludes a namespace: one that carries the label with another value is in
// the backup.
func TestANamespaceLabelledFalseIsNotExcluded(t *testing.T) {
	v := newValidator(t, newStorageLocation("main", isDefault), newNamespace("kept", map[string]string{"velero.io/exclude-from-backup": "false"}),
		newNamespace("secret", map[string]string{"velero.io/exclude-from-backup": "true"}))
	live, excluded, err := v.Namespaces(t.Context())
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"kept", "secret"}, live)
	require.Equal(t, []string{"secret"}, excluded)
	b := newBackup(velerov1.BackupSpec{})
	problems, err := v.Backup(t.Context(), b)
	require.NoError(t, err)
	require.Empty(t, problems)
	require.Equal(t, []string{"secret"}, b.Spec.ExcludedNamespaces)
}

func TestOldFiltersExcludeSnapshotsInTheirOwnList(t *testing.T) {
	v := newValidator(t, newStorageLocation("main", isDefault))
	b := newBackup(velerov1.BackupSpec{IncludedResources: []string{"pods", "volumesnapshots.snapshot.storage.k8s.io"}})
	problems, err := v.Backup(t.Context(), b)
	require.NoError(t, err)
	require.Empty(t, problems)
	require.Equal(t, []string{"pods"}, b.Spec.IncludedResources)
	require.Equal(t, []string{"volumesnapshots.snapshot.storage.k8s.io", "volumesnapshotcontents.snapshot.storage.k8s.io"}, b.Spec.ExcludedResources)
	require.Empty(t, b.Spec.ExcludedClusterScopedResources)
}

func TestBackupProblemsNameTheField(t *testing.T) {
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
	wrong := &metav1.LabelSelector{MatchLabels: map[string]string{"a": "not a value"}}
	for want, spec := range map[string]velerov1.BackupSpec{
		"spec.labelSelector: ":       {LabelSelector: wrong},
		"spec.orLabelSelectors[1]: ": {OrLabelSelectors: []*metav1.LabelSelector{selector, wrong}},
		"spec.hooks.resources[0].pre[0].exec": {Hooks: velerov1.BackupHooks{Resources: []velerov1.BackupResourceHookSpec{
			{Name: "h", PreHooks: []velerov1.BackupResourceHook{{}}}}}},
		"spec.resourcePolicy":   {ResourcePolicy: &corev1.TypedLocalObjectReference{Kind: "ConfigMap", Name: "p"}},
		"spec.orderedResources": {OrderedResources: map[string]string{"pods": "a/b"}},
		"spec.snapshotVolumes: there is no VolumeSnapshotLocation":           {SnapshotVolumes: ptr.To(true)},
		"spec.snapshotMoveData: CSI snapshots, whose data it moves, are off": {SnapshotMoveData: ptr.To(true)},
		`spec.volumeSnapshotLocations: volume snapshot location "aws"`:       {VolumeSnapshotLocations: []string{"aws"}},
		"spec.datamover": {DataMover: "other"},
		"spec.uploaderConfig.parallelFilesUpload":                     {UploaderConfig: &velerov1.UploaderConfigForBackup{ParallelFilesUpload: -1}},
		"spec.volumeGroupSnapshotLabelKey":                            {VolumeGroupSnapshotLabelKey: "mine"},
		"spec.ttl":                                                    {TTL: metav1.Duration{Duration: -1}},
		"spec.storageLocation":                                        {StorageLocation: "absent"},
		`"readonly" is read-only`:                                     {StorageLocation: "readonly"},
		`"fresh" is unavailable`:                                      {StorageLocation: "fresh"},
		"cannot be used together":                                     {IncludedResources: []string{"pods"}, IncludedNamespaceScopedResources: []string{"pods"}},
		"Invalid included/excluded resource lists: ":                  {IncludedResources: []string{"*", "pods"}},
		"Invalid cluster-scoped included/excluded resource lists: ":   {IncludedClusterScopedResources: []string{"*", "nodes"}},
		"Invalid namespace-scoped included/excluded resource lists: ": {IncludedNamespaceScopedResources: []string{"a"}, ExcludedNamespaceScopedResources: []string{"a"}},
		"Invalid included/excluded namespace lists: ":                 {IncludedNamespaces: []string{"a**b"}},
		`"secret" is included and labelled`:                           {IncludedNamespaces: []string{"secret"}},
		"labelSelector and orLabelSelectors":                          {LabelSelector: selector, OrLabelSelectors: []*metav1.LabelSelector{selector}},
	} {
		t.Run(want, func(t *testing.T) {
			v := newValidator(t, newStorageLocation("main", isDefault), newNamespace("secret", map[string]string{"velero.io/exclude-from-backup": "true"}),
				newStorageLocation("readonly", func(b *velerov1.BackupStorageLocation) { b.Spec.AccessMode = velerov1.LocationModeReadOnly }),
				newStorageLocation("fresh", func(b *velerov1.BackupStorageLocation) { b.Status.Phase = "" }))
			problems, err := v.Backup(t.Context(), newBackup(spec))
			require.NoError(t, err)
			require.Contains(t, strings.Join(problems.Strings(), "\n"), want)
			require.NotEmpty(t, problems)
		})
	}
}

func TestAllowedBackupFields(t *testing.T) {
	v := newValidator(t, newStorageLocation("main", isDefault))
	problems, err := v.Backup(t.Context(), newBackup(velerov1.BackupSpec{
		SnapshotVolumes: ptr.To(false), SnapshotMoveData: ptr.To(false), DefaultVolumesToFsBackup: ptr.To(true), DefaultVolumesToRestic: ptr.To(true), DataMover: "velero",
		UploaderConfig: &velerov1.UploaderConfigForBackup{ParallelFilesUpload: 3}, VolumeGroupSnapshotLabelKey: "velero.io/volume-group",
		ExcludedClusterScopedResources: []string{"*"}, CSISnapshotTimeout: metav1.Duration{Duration: time.Minute},
	}))
	require.NoError(t, err)
	require.Empty(t, problems)
}

func TestLocationFallsBackToTheFlag(t *testing.T) {
	b := newBackup(velerov1.BackupSpec{})
	problems, err := newValidator(t, newStorageLocation("default")).Backup(t.Context(), b)
	require.NoError(t, err)
	require.Empty(t, problems)
	require.Equal(t, "default", b.Spec.StorageLocation)
}

// The error named a location that nobody had given.
func TestWithoutADefaultTheErrorSaysSo(t *testing.T) {
	b := newBackup(velerov1.BackupSpec{})
	problems, err := newValidator(t, newStorageLocation("other")).Backup(t.Context(), b)
	require.NoError(t, err)
	require.Len(t, problems, 1)
	require.Equal(t, "spec.storageLocation: no BackupStorageLocation is the default: name one here, or set spec.default on one", problems[0].String())
	require.Empty(t, b.Spec.StorageLocation)
}

// Until manifest-indexer has looked, the queue agrees with what it will decide.
func TestTheDefaultChosenLastCounts(t *testing.T) {
	older, accepted := newStorageLocation("older", isDefault), newStorageLocation("accepted", isDefault)
	older.CreationTimestamp, accepted.CreationTimestamp = metav1.NewTime(now.Add(-time.Hour)), metav1.NewTime(now)
	accepted.Annotations = map[string]string{"holdfast.io/default-accepted": "default"}
	for mark, want := range map[string]string{"": "older", "2026-01-01T00:00:00Z": "older", "repeatedly 2026-01-01T00:00:00Z": "accepted"} {
		older.Annotations = map[string]string{"holdfast.io/default-withdrawn": mark}
		b := newBackup(velerov1.BackupSpec{})
		problems, err := newValidator(t, older.DeepCopy(), accepted.DeepCopy()).Backup(t.Context(), b)
		require.NoError(t, err)
		require.Empty(t, problems)
		require.Equal(t, want, b.Spec.StorageLocation, mark)
	}
}

// An API server that is away decides nothing about the object.
func TestAnOutageIsNotAProblemOfTheObject(t *testing.T) {
	boom := errors.New("boom")
	c := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return boom
		},
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return boom },
	}).Build()
	_, err := validatorOver(c).Backup(t.Context(), newBackup(velerov1.BackupSpec{}))
	require.ErrorIs(t, err, boom)
	_, err = validatorOver(c).Restore(t.Context(), newRestore(velerov1.RestoreSpec{BackupName: "b"}))
	require.ErrorIs(t, err, boom)
	_, err = validatorOver(c).Restore(t.Context(), newRestore(velerov1.RestoreSpec{ScheduleName: "s"}))
	require.ErrorIs(t, err, boom)
}

func newRestore(spec velerov1.RestoreSpec) *velerov1.Restore {
	return &velerov1.Restore{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "r", UID: "u"}, Spec: spec}
}

func storedBackup(name, schedule string, phase velerov1.BackupPhase, age time.Duration) *velerov1.Backup {
	b := newBackup(velerov1.BackupSpec{StorageLocation: "main"})
	b.Name, b.Status.Phase = name, phase
	b.Status.StartTimestamp = &metav1.Time{Time: now.Add(-age)}
	if schedule != "" {
		b.Labels = map[string]string{velerov1.LabelScheduleName: schedule}
	}
	return b
}

func TestRestoreIsCompletedAsVeleroDoes(t *testing.T) {
	v := newValidator(t, newStorageLocation("main"), storedBackup("failed", "daily", velerov1.BackupPhaseFailed, 1*time.Hour),
		storedBackup("newer", "daily", velerov1.BackupPhaseCompleted, 2*time.Hour), storedBackup("older", "daily", velerov1.BackupPhaseCompleted, 3*time.Hour))
	r := newRestore(velerov1.RestoreSpec{ScheduleName: "daily", ExcludedResources: []string{"nodes"}})
	problems, err := v.Restore(t.Context(), r)
	require.NoError(t, err)
	require.Empty(t, problems)
	require.Equal(t, "newer", r.Spec.BackupName)
	require.Equal(t, 4*time.Hour, r.Spec.ItemOperationTimeout.Duration)
	require.Len(t, r.Spec.ExcludedResources, 9)
	require.Contains(t, r.Finalizers, velerov1.RestoreFinalizer)

	r = newRestore(velerov1.RestoreSpec{BackupName: "failed"})
	problems, err = v.Restore(t.Context(), r)
	require.NoError(t, err)
	require.Empty(t, problems, "a failed backup may be restored by name")
	require.Equal(t, "daily", r.Spec.ScheduleName)
}

// A restore of a backup whose data is being removed restores whatever part of it is still there.
func TestABackupThatIsBeingDeletedIsNoSource(t *testing.T) {
	v := newValidator(t, newStorageLocation("main"), storedBackup("b", "", velerov1.BackupPhaseDeleting, 0), storedBackup("done", "", velerov1.BackupPhaseCompleted, 0))
	const says = `spec.backupName: backup "b" is being deleted`
	problems, err := v.Restore(t.Context(), newRestore(velerov1.RestoreSpec{BackupName: "b"}))
	require.NoError(t, err)
	require.Equal(t, []string{says}, problems.Strings())
	for name, want := range map[string][]string{"b": {says}, "done": {}, "gone": {}} {
		problems, err = v.Source(t.Context(), newRestore(velerov1.RestoreSpec{BackupName: name}))
		require.NoError(t, err)
		require.Equal(t, want, problems.Strings(), name)
	}
}

func TestRestoreProblemsNameTheField(t *testing.T) {
	for want, spec := range map[string]velerov1.RestoreSpec{
		"spec.hooks.resources[0].postHooks[0].exec.command": {BackupName: "b", Hooks: velerov1.RestoreHooks{Resources: []velerov1.RestoreResourceHookSpec{
			{Name: "h", PostHooks: []velerov1.RestoreResourceHook{{Exec: &velerov1.ExecRestoreHook{Command: []string{""}}}}}}}},
		"spec.resourceModifier":              {BackupName: "b", ResourceModifier: &corev1.TypedLocalObjectReference{Name: "m"}},
		"spec.restoreStatus":                 {BackupName: "b", RestoreStatus: &velerov1.RestoreStatusSpec{}},
		"spec.existingResourcePolicy":        {BackupName: "b", ExistingResourcePolicy: "overwrite"},
		"spec.namespaceMapping":              {BackupName: "b", NamespaceMapping: map[string]string{"a": "Not_A_Name"}},
		"exactly one":                        {},
		"exactly one of":                     {BackupName: "b", ScheduleName: "s"},
		"spec.backupName: backup \"absent\"": {BackupName: "absent"},
		"spec.scheduleName: no completed":    {ScheduleName: "never"},
		"nodes are non-restorable resources": {BackupName: "b", IncludedResources: []string{"nodes"}},
		"\"gone\" not found":                 {BackupName: "lost"},
	} {
		t.Run(want, func(t *testing.T) {
			lost := storedBackup("lost", "", velerov1.BackupPhaseCompleted, 0)
			lost.Spec.StorageLocation = "gone"
			v := newValidator(t, newStorageLocation("main"), storedBackup("b", "", velerov1.BackupPhaseCompleted, 0), lost)
			r := newRestore(spec)
			problems, err := v.Restore(t.Context(), r)
			require.NoError(t, err)
			require.Contains(t, strings.Join(problems.Strings(), "\n"), want)
			require.Equal(t, 4*time.Hour, r.Spec.ItemOperationTimeout.Duration, "defaults are set all the same")
		})
	}
}

// A typing error in an annotation changes nothing silently, and an unreadable claim would hold its
// place among the running jobs indefinitely, since no runner could take it.
func TestAnnotationsOfJobs(t *testing.T) {
	v := newValidator(t, newStorageLocation("main", isDefault), storedBackup("b", "", velerov1.BackupPhaseCompleted, 0))
	for key, values := range map[string]struct{ backup, wrongBackup, restore, wrongRestore []string }{
		holdfast.AnnotationPriority:          {backup: []string{"high", "normal", "low"}, wrongBackup: []string{"", "urgent"}},
		holdfast.AnnotationIgnoreRunning:     {wrongBackup: []string{"true"}, restore: []string{"true", "false"}, wrongRestore: []string{"", "yes"}},
		"holdfast.io/dryrun":                 {wrongBackup: []string{"true"}, wrongRestore: []string{"true"}},
		holdfast.AnnotationDryRun:            {backup: []string{"true", "false"}, wrongBackup: []string{"", "yes"}, restore: []string{"true", "false"}, wrongRestore: []string{"", "yes"}},
		holdfast.AnnotationPreserveAddresses: {restore: []string{"true", "false"}, wrongRestore: []string{"", "yes"}},
		holdfast.AnnotationOrder:             {restore: []string{"owners"}, wrongRestore: []string{"Owners"}},
		holdfast.AnnotationRunAgain:          {restore: []string{"workflows.argoproj.io,orders.acme.cert-manager.io"}, wrongRestore: []string{"workflows"}},
		holdfast.AnnotationOverwriteVolumes:  {restore: []string{"true", "false"}, wrongRestore: []string{"yes"}},
		holdfast.AnnotationRunningJobs:       {restore: []string{"start", "suspend", "skip"}, wrongRestore: []string{"stop"}},
		holdfast.AnnotationItems:             {restore: []string{"deploy/shop/web", "Cluster.cluster.x-k8s.io/a/b, clusterrole/system:x"}, wrongRestore: []string{"", "web", "deploy/shop/web/x", "deploy//web", "a/b,"}},
		holdfast.AnnotationItemsWith:         {wrongRestore: []string{"", "children"}},
		holdfast.AnnotationPlanStrict:        {backup: []string{"false"}, wrongBackup: []string{"yes", "true"}, restore: []string{"false"}, wrongRestore: []string{"", "true"}}, // without a plan
		holdfast.AnnotationClaim: {
			wrongBackup:  []string{"", "x", `{"holder":"a"}`, `{"holder":"a","epoch":-1}`},
			wrongRestore: []string{"", "x", `{"holder":"a"}`, `{"holder":"a","epoch":-1}`},
		},
	} {
		check := func(texts []string, wrong bool, judge func(annotations map[string]string) (validate.Problems, error)) {
			for _, text := range texts {
				problems, err := judge(map[string]string{key: text})
				require.NoError(t, err)
				if !wrong {
					require.Empty(t, problems, "%s: %q", key, text)
					continue
				}
				require.Len(t, problems, 1, "%s: %q", key, text)
				require.Equal(t, "metadata.annotations["+key+"]", problems[0].Field)
			}
		}
		backup := func(annotations map[string]string) (validate.Problems, error) {
			b := newBackup(velerov1.BackupSpec{})
			b.Annotations = annotations
			return v.Backup(t.Context(), b)
		}
		restore := func(annotations map[string]string) (validate.Problems, error) {
			r := newRestore(velerov1.RestoreSpec{BackupName: "b"})
			r.Annotations = annotations
			return v.Restore(t.Context(), r)
		}
		check(values.backup, false, backup)
		check(values.wrongBackup, true, backup)
		check(values.restore, false, restore)
		check(values.wrongRestore, true, restore)
	}
}

func TestTargets(t *testing.T) {
	mapping := map[string]string{"a": "x"}
	for name, tc := range map[string]struct {
		spec velerov1.RestoreSpec
		want []string
	}{
		"nothing named":   {velerov1.RestoreSpec{NamespaceMapping: mapping}, []string{"*"}},
		"everything":      {velerov1.RestoreSpec{IncludedNamespaces: []string{"*"}}, []string{"*"}},
		"a pattern":       {velerov1.RestoreSpec{IncludedNamespaces: []string{"a", "team-*"}}, []string{"*"}},
		"names, mapped":   {velerov1.RestoreSpec{IncludedNamespaces: []string{"a", "b"}, NamespaceMapping: mapping}, []string{"b", "x"}},
		"less excluded":   {velerov1.RestoreSpec{IncludedNamespaces: []string{"a", "b"}, ExcludedNamespaces: []string{"b"}}, []string{"a"}},
		"sorted, once":    {velerov1.RestoreSpec{IncludedNamespaces: []string{"c", "a", "b", "a"}, NamespaceMapping: map[string]string{"b": "c"}}, []string{"a", "c"}},
		"nothing is left": {velerov1.RestoreSpec{IncludedNamespaces: []string{"b"}, ExcludedNamespaces: []string{"b"}}, []string{}},
		"no namespaces":   {velerov1.RestoreSpec{IncludedNamespaces: []string{""}}, []string{}},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, tc.want, validate.Targets(&tc.spec)) })
	}
}
