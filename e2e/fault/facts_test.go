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
	p := points{dir: t.TempDir()}
	require.NoError(t, p.arm("deletion/begun", Kill, 3))
	require.FileExists(t, p.dir+"/deletion.begun")
	pid, err := p.hit("deletion/begun")
	require.NoError(t, err)
	require.Zero(t, pid)
	require.NoError(t, p.clear())
	require.NoFileExists(t, p.dir+"/deletion.begun")
}
