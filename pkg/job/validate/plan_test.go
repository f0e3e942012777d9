package validate_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/storedplan"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/objectstore/location"
)

func TestABackupTakesItsSpecFromItsPlan(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "b"), 0o700))
	main := newStorageLocation("main", isDefault, func(b *velerov1.BackupStorageLocation) {
		b.Spec.Provider, b.Spec.Config = holdfast.ProviderFile, map[string]string{"path": dir}
		b.Spec.ObjectStorage = &velerov1.ObjectStorageLocation{Bucket: "b"}
	})
	c := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(main, newStorageLocation("away", func(b *velerov1.BackupStorageLocation) { b.Status.Phase = "" }),
		newStorageLocation("wrong", func(b *velerov1.BackupStorageLocation) { b.Status.Phase = velerov1.LocationPhaseUnavailable })).Build()
	v := validatorOver(c)
	store, err := location.New(c, "velero").Open(t.Context(), main)
	require.NoError(t, err)
	defer func() { require.NoError(t, store.Close()) }()
	spec := velerov1.BackupSpec{StorageLocation: "main", IncludedNamespaces: []string{"web"}, TTL: metav1.Duration{Duration: time.Hour}}
	text, err := json.Marshal(spec)
	require.NoError(t, err)
	for id, change := range map[string]func(*storedplan.Header){
		"good": func(*storedplan.Header) {}, "old": func(h *storedplan.Header) { h.Expires = now }, "restore": func(h *storedplan.Header) { h.Kind = storedplan.KindRestore },
	} {
		rows := storedplan.NewWriter(t.TempDir())
		require.NoError(t, rows.Sort())
		h := storedplan.Header{ID: id, Kind: storedplan.KindBackup, Expires: now.Add(time.Second), Spec: text,
			Annotations: map[string]string{velerov1.AnnotationCSISnapshotClassPrefix + "d": "c"}}
		change(&h)
		require.NoError(t, rows.Store(t.Context(), store, &h))
		require.NoError(t, rows.Close())
	}
	for name, tt := range map[string]struct {
		id      string
		given   velerov1.BackupSpec
		problem string
	}{
		"empty spec":        {"good", velerov1.BackupSpec{}, ""},
		"location alone":    {"good", velerov1.BackupSpec{StorageLocation: "main"}, ""},
		"a copy":            {"good", spec, ""},
		"another spec":      {"good", velerov1.BackupSpec{IncludedNamespaces: []string{"db"}}, "spec: must name nothing but storageLocation"},
		"none":              {"absent", velerov1.BackupSpec{}, `metadata.annotations[holdfast.io/plan]: backup storage location "main": no such plan`},
		"no name":           {"../x", velerov1.BackupSpec{}, "metadata.annotations[holdfast.io/plan]: "},
		"expired":           {"old", velerov1.BackupSpec{}, "has expired"},
		"of a restore":      {"restore", velerov1.BackupSpec{}, "is of a Restore"},
		"unusable location": {"good", velerov1.BackupSpec{StorageLocation: "wrong"}, "is unavailable"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBackup(*tt.given.DeepCopy())
			b.Annotations = map[string]string{holdfast.AnnotationPlan: tt.id}
			problems, err := v.ApplyPlan(t.Context(), b)
			require.NoError(t, err)
			if tt.problem != "" {
				require.Contains(t, strings.Join(problems.Strings(), "\n"), tt.problem)
				return
			}
			require.Empty(t, problems)
			require.Equal(t, spec, b.Spec)
			require.Equal(t, "c", b.Annotations[velerov1.AnnotationCSISnapshotClassPrefix+"d"])
			problems, err = v.Backup(t.Context(), b)
			require.NoError(t, err)
			require.Empty(t, problems, "the annotation is known")
		})
	}
	b := newBackup(velerov1.BackupSpec{StorageLocation: "away"})
	b.Annotations = map[string]string{holdfast.AnnotationPlan: "good"}
	_, err = v.ApplyPlan(t.Context(), b)
	require.ErrorContains(t, err, "is unavailable", "it stays new until the location is validated")
}
