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
	for _, actions := range [][]action.BackupItem{nil, {annotate("a.io/x", action.Selector{})}} {
		base := newSetup(t, estate(), fifty(), "a").with(actions...)
		base.job.Actions.Errors = []string{"plugin x cannot be asked"}
		whole := base.first(t)
		res, got := whole.run(t)
		require.Equal(t, 1, res.Errors)
		require.Equal(t, []string{" /: plugin x cannot be asked"}, got.at(joblog.Error))

		for n := 2; ; n++ { // also after a takeover, with what is missing there alone
			s := base.first(t)
			died := dieAt(s.store, n)
			_, err := Run(t.Context(), s.cfg, s.job)
			if !died() {
				require.NoError(t, err)
				require.Greater(t, n, 3)
				break
			}
			s.store.Inject(nil)
			next := s.holder(t, 2)
			next.job.Actions.Errors = []string{"plugin x cannot be asked", "plugin y cannot be asked"}
			res, got := next.run(t)
			require.Equal(t, 2, res.Errors, "death at write %d", n)
			require.ElementsMatch(t, []string{" /: plugin x cannot be asked", " /: plugin y cannot be asked"}, got.at(joblog.Error), "death at write %d", n)
			n += 5
		}
	}
}

func TestWhatIsNotAmongTheActionsIsAWarning(t *testing.T) {
	s := newSetup(t, estate(), fifty(), "a")
	s.job.Actions.Warnings = []string{"plugin x is not used"}
	res, got := s.run(t)
	require.Equal(t, 1, res.Warnings)
	require.Contains(t, strings.Join(got.at(joblog.Warning), "\n"), "plugin x is not used")
}
