package fault

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCompareNamesEveryDifference(t *testing.T) {
	base := Facts{"phase": "Completed", "object a": "1", "object b": "2"}
	require.NoError(t, base.Compare(Facts{"phase": "Completed", "object a": "1", "object b": "2"}))
	err := base.Compare(Facts{"phase": "PartiallyFailed", "object a": "1", "object c": "3"})
	require.ErrorIs(t, err, ErrDiffers)
	require.ErrorContains(t, err, "! phase: PartiallyFailed instead of Completed")
	require.ErrorContains(t, err, "- object b: 2")
	require.ErrorContains(t, err, "+ object c: 3")
	require.NotContains(t, err.Error(), "object a")
	require.ErrorIs(t, Facts(nil).Compare(base), ErrDiffers)
	require.ErrorIs(t, base.Compare(nil), ErrDiffers)
}

func TestArmedPointsAreReadAsWritten(t *testing.T) {
	p := pointDir{dir: t.TempDir()}
	require.NoError(t, p.armPoint("deletion/begun", Kill, 3))
	require.FileExists(t, p.dir+"/deletion.begun")
	pid, err := p.readHitProcess("deletion/begun")
	require.NoError(t, err)
	require.Zero(t, pid)
	require.NoError(t, p.clearPoints())
	require.NoFileExists(t, p.dir+"/deletion.begun")
}

// What may differ by right has to be what it should be instead: a call that was made twice, or an
// error that is missing, is a difference all the same.
func TestChangesAreExpectedAndNoMore(t *testing.T) {
	undisturbed := Facts{"phase": "Completed", "errors": "0", "calls": "1", "object": "there"}
	changes := Facts{"phase": "^PartiallyFailed$", "errors": "^1$", "object": ""}
	compare := func(got Facts) error { return undisturbed.Changed(changes).Compare(got.Matched(changes)) }
	require.NoError(t, compare(Facts{"phase": "PartiallyFailed", "errors": "1", "calls": "1"}))
	for name, got := range map[string]Facts{
		"as if nothing had happened": undisturbed,
		"called twice":               {"phase": "PartiallyFailed", "errors": "1", "calls": "2"},
		"another error":              {"phase": "PartiallyFailed", "errors": "11", "calls": "1"},
		"stored all the same":        {"phase": "PartiallyFailed", "errors": "1", "calls": "1", "object": "there"},
		"no phase":                   {"errors": "1", "calls": "1"},
	} {
		require.ErrorIs(t, compare(got), ErrDiffers, name)
	}
	require.NoError(t, undisturbed.Changed(nil).Compare(undisturbed.Matched(nil)))
}
