package validate_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

func newSnapshotLocation(name, provider string) *velerov1.VolumeSnapshotLocation {
	return &velerov1.VolumeSnapshotLocation{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: name}, Spec: velerov1.VolumeSnapshotLocationSpec{Provider: provider}}
}

// A Schedule with snapshotVolumes: true and no VolumeSnapshotLocation made only backups that failed validation.
func TestSnapshotsAreInsistedOnWithoutALocationWhereCSIIsOn(t *testing.T) {
	v := newValidator(t, newStorageLocation("main", isDefault))
	b := newBackup(velerov1.BackupSpec{SnapshotVolumes: ptr.To(true)})
	problems, err := v.Backup(t.Context(), b)
	require.NoError(t, err)
	require.Len(t, problems, 1)
	require.Contains(t, problems[0].String(), "spec.snapshotVolumes: there is no VolumeSnapshotLocation")

	v.CSI = true
	problems, err = v.Backup(t.Context(), b)
	require.NoError(t, err)
	require.Empty(t, problems)
	require.Empty(t, b.Spec.VolumeSnapshotLocations)
}

func TestDataIsMovedWhereCSIIsOn(t *testing.T) {
	v := newValidator(t, newStorageLocation("main", isDefault))
	v.CSI, v.Defaults.SnapshotMoveData = true, true
	b := newBackup(velerov1.BackupSpec{})
	problems, err := v.Backup(t.Context(), b)
	require.NoError(t, err)
	require.Empty(t, problems)
	require.True(t, *b.Spec.SnapshotMoveData)

	b = newBackup(velerov1.BackupSpec{SnapshotMoveData: ptr.To(false)})
	_, err = v.Backup(t.Context(), b)
	require.NoError(t, err)
	require.False(t, *b.Spec.SnapshotMoveData)
}

func TestSnapshotLocationsAreChosenAsVeleroDoes(t *testing.T) {
	one, other, another := newSnapshotLocation("one", "aws"), newSnapshotLocation("other", "aws"), newSnapshotLocation("another", "gcp")
	elsewhere := newSnapshotLocation("elsewhere", "azure")
	elsewhere.Namespace = "another"
	for name, tt := range map[string]struct {
		locations []client.Object
		defaults  map[string]string
		spec      velerov1.BackupSpec
		want      []string
		problem   string
	}{
		"none":                        {},
		"none, none wanted":           {spec: velerov1.BackupSpec{SnapshotVolumes: ptr.To(false)}},
		"another namespace's":         {locations: []client.Object{elsewhere}},
		"one of each provider":        {locations: []client.Object{one, another}, want: []string{"another", "one"}},
		"also where none are wanted":  {locations: []client.Object{one}, spec: velerov1.BackupSpec{SnapshotVolumes: ptr.To(false)}, want: []string{"one"}},
		"insisted on":                 {locations: []client.Object{one}, spec: velerov1.BackupSpec{SnapshotVolumes: ptr.To(true)}, want: []string{"one"}},
		"several":                     {locations: []client.Object{one, other}, problem: `provider "aws" has the locations one, other and no default`},
		"several, none wanted":        {locations: []client.Object{one, other}, spec: velerov1.BackupSpec{SnapshotVolumes: ptr.To(false)}},
		"several with a default":      {locations: []client.Object{one, other, another}, defaults: map[string]string{"aws": "other"}, want: []string{"another", "other"}},
		"several with an absent one":  {locations: []client.Object{one, other}, defaults: map[string]string{"aws": "lost"}, problem: `the default location "lost" of provider "aws" not found`},
		"named, others by themselves": {locations: []client.Object{one, other, another}, spec: velerov1.BackupSpec{VolumeSnapshotLocations: []string{"one"}}, want: []string{"another", "one"}},
		"named twice":                 {locations: []client.Object{one, other}, spec: velerov1.BackupSpec{VolumeSnapshotLocations: []string{"one", "one"}}, want: []string{"one"}},
		"named two of one provider":   {locations: []client.Object{one, other}, spec: velerov1.BackupSpec{VolumeSnapshotLocations: []string{"other", "one"}}, problem: `"other" and "one" are both of provider "aws"`},
		"named one that is not there": {locations: []client.Object{one}, spec: velerov1.BackupSpec{VolumeSnapshotLocations: []string{"lost"}}, problem: `volume snapshot location "lost" not found`},
	} {
		t.Run(name, func(t *testing.T) {
			v := newValidator(t, append(tt.locations, newStorageLocation("main", isDefault))...)
			v.Defaults.SnapshotLocations = tt.defaults
			b := newBackup(tt.spec)
			problems, err := v.Backup(t.Context(), b)
			require.NoError(t, err)
			if tt.problem != "" {
				require.Contains(t, strings.Join(problems.Strings(), "\n"), "spec.volumeSnapshotLocations: "+tt.problem)
				return
			}
			require.Empty(t, problems)
			require.Equal(t, tt.want, b.Spec.VolumeSnapshotLocations)
			again, err := v.Backup(t.Context(), b) // at admission
			require.NoError(t, err)
			require.Empty(t, again)
			require.Equal(t, tt.want, b.Spec.VolumeSnapshotLocations)
		})
	}
}
