package validate_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/validate"
)

// A location that worked before is waited for; one that never did is a mistake, and so is one that
// is absent or read-only.
func TestWhichLocationsAreWaitedFor(t *testing.T) {
	down := func(b *velerov1.BackupStorageLocation) {
		b.Status.Phase, b.Status.Message = velerov1.LocationPhaseUnavailable, "no route"
	}
	synced := func(b *velerov1.BackupStorageLocation) { b.Status.LastSyncedTime = &metav1.Time{Time: now} }
	readOnly := func(b *velerov1.BackupStorageLocation) { b.Spec.AccessMode = velerov1.LocationModeReadOnly }
	fresh := func(b *velerov1.BackupStorageLocation) { b.Status.Phase = "" }
	for name, tt := range map[string]struct {
		location *velerov1.BackupStorageLocation
		phase    velerov1.BackupPhase
		lasting  int
		away     string
	}{
		"it worked":                     {newStorageLocation("main", down, synced), "", 0, `backup storage location "main" is unavailable: no route`},
		"it never worked":               {newStorageLocation("main", down), "", 1, `backup storage location "main" is unavailable: no route`},
		"it did when this was queued":   {newStorageLocation("main", down), velerov1.BackupPhaseQueued, 0, `backup storage location "main" is unavailable: no route`},
		"it is to be validated yet":     {newStorageLocation("main", fresh), "", 0, `backup storage location "main" is unavailable: it has not been validated yet`},
		"it is down, and read-only too": {newStorageLocation("main", down, synced, readOnly), "", 1, `backup storage location "main" is unavailable: no route`},
		"it is absent":                  {newStorageLocation("other"), "", 1, ""},
		"it is available":               {newStorageLocation("main"), "", 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			v := newValidator(t, tt.location)
			b := newBackup(velerov1.BackupSpec{StorageLocation: "main"})
			b.Status.Phase = tt.phase
			problems, err := v.Backup(t.Context(), b)
			require.NoError(t, err)
			require.Len(t, problems.LastingProblems(), tt.lasting)
			away, err := v.Away(t.Context(), b)
			require.NoError(t, err)
			require.Equal(t, tt.away, away)
		})
	}
}

// A spec that lists a megabyte of namespaces is stored once more in the ledger, in an annotation
// and, where each is wrong, in status.validationErrors.
func TestWhatASpecListsIsBounded(t *testing.T) {
	var names []string
	for i := range 20_000 {
		names = append(names, fmt.Sprintf("BAD-%s-%05d", strings.Repeat("n", 40), i))
	}
	problems := validate.BackupSpec(&velerov1.BackupSpec{IncludedNamespaces: names, ExcludedNamespaces: []string{strings.Repeat("x", 1<<20)}})
	text := problems.Strings()
	require.Contains(t, text[0], "spec.includedNamespaces: 20000 namespaces take ")
	require.Contains(t, text[1], "spec.excludedNamespaces: ")
	require.LessOrEqual(t, len(strings.Join(text, "")), 64<<10)
	require.Contains(t, text[len(text)-1], "more")

	wide := velerov1.RestoreSpec{IncludedNamespaces: names}
	require.Equal(t, []string{"*"}, validate.Targets(&wide), "it counts as a restore of all namespaces")
}
