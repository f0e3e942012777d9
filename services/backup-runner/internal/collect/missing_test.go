package collect

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/joblog"
)

// A plugin that cannot be asked what it registers is a warning, and the backup is Completed without
// what it would have changed.
func TestWhatABackupDoesWithoutIsAnErrorOnceWhoeverHoldsIt(t *testing.T) {
	for _, actions := range [][]action.BackupItem{nil, {tracingAction("a.io/x", action.Selector{})}} {
		base := newSetup(t, newEstateServer(), fiftyConfigMaps(), "a").addActions(actions...)
		base.job.Actions.Errors = []string{"plugin x cannot be asked"}
		whole := base.firstOwner(t)
		res, got := whole.runJob(t)
		require.Equal(t, 1, res.Errors)
		require.Equal(t, []string{" /: plugin x cannot be asked"}, got.notesAt(joblog.Error))

		for n := 2; ; n++ { // also after a takeover, with what is missing there alone
			s := base.firstOwner(t)
			died := dieAt(s.store, n)
			_, err := Run(t.Context(), s.cfg, s.job)
			if !died() {
				require.NoError(t, err)
				require.Greater(t, n, 3)
				break
			}
			s.store.Inject(nil)
			next := s.nextOwner(t, 2)
			next.job.Actions.Errors = []string{"plugin x cannot be asked", "plugin y cannot be asked"}
			res, got := next.runJob(t)
			require.Equal(t, 2, res.Errors, "death at write %d", n)
			require.ElementsMatch(t, []string{" /: plugin x cannot be asked", " /: plugin y cannot be asked"}, got.notesAt(joblog.Error), "death at write %d", n)
			n += 5
		}
	}
}

func TestWhatIsNotAmongTheActionsIsAWarning(t *testing.T) {
	s := newSetup(t, newEstateServer(), fiftyConfigMaps(), "a")
	s.job.Actions.Warnings = []string{"plugin x is not used"}
	res, got := s.runJob(t)
	require.Equal(t, 1, res.Warnings)
	require.Contains(t, strings.Join(got.notesAt(joblog.Warning), "\n"), "plugin x is not used")
}
