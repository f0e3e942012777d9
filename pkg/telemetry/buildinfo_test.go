package telemetry

import (
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestStampedCommit(t *testing.T) {
	require.Equal(t, "unknown", stampedCommit(nil))
	clean := []debug.BuildSetting{{Key: "vcs", Value: "git"}, {Key: "vcs.revision", Value: "abc"}, {Key: "vcs.modified", Value: "false"}}
	require.Equal(t, "abc", stampedCommit(clean))
	dirty := []debug.BuildSetting{{Key: "vcs.modified", Value: "true"}, {Key: "vcs.revision", Value: "abc"}}
	require.Equal(t, "abc-dirty", stampedCommit(dirty))
}

func TestTheLinkerWins(t *testing.T) {
	require.Equal(t, "dev", Version())
	t.Cleanup(func() { version, commit = "", "" })
	version, commit = "v1.2.3", "def"
	require.Equal(t, "v1.2.3", Version())
	require.Equal(t, "def", Commit())
	require.Contains(t, BuildInfo(), "v1.2.3 (commit def, go")
}
