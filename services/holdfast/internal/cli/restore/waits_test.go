package restore_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/clitest"
)

// describe and logs of a running restore say what it waits for.
func TestAWaitingRestoreSaysForWhat(t *testing.T) {
	r := newRestore("r", velerov1.RestorePhaseInProgress)
	r.UID = "uid-r"
	var waits mark.Waits
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g"} {
		waits.Add(mark.Wait{Object: "pods ns/" + name, Reason: "hooks wait", Since: time.Unix(1_700_000_000, 0)})
	}
	require.NoError(t, mark.SetWaits(r, waits))
	ended := newRestore("ended", velerov1.RestorePhaseCompleted)
	ended.UID, ended.Annotations = "uid-r", r.Annotations
	c := clitest.New(t, r, ended)
	const first, last = "- pods ns/a: hooks wait (since 2023-11-14T22:13:20Z)\n", "- and 2 more\n"
	described := c.Run(t.Context(), "", "restore", "describe", "r").Out
	require.Contains(t, described, "Waits for:\n  "+first)
	require.Contains(t, described, "  "+last)
	require.NotContains(t, described, "ns/f: hooks")
	logs := c.Run(t.Context(), "", "restore", "logs", "r")
	require.Contains(t, logs.Out, "pods ns/a: hooks wait")
	require.Contains(t, logs.Err, "what it has logged so far cannot be read")
	require.Contains(t, logs.Err, "or the port of restore-runner forwarded? --restore-address says where it is")
	require.NotContains(t, c.Run(t.Context(), "", "restore", "describe", "ended").Out, "Waits for")
}

// Nobody waits for the log of a restore that was refused.
func TestARefusedRestoreHasNoLogToWaitFor(t *testing.T) {
	r := newRestore("r", velerov1.RestorePhaseFailedValidation)
	r.Status.ValidationErrors = []string{"spec.includedNamespaces: nothing is left to restore"}
	said := clitest.New(t, r).Run(t.Context(), "", "restore", "logs", "r").Err
	require.Contains(t, said, "there is no log to show")
	require.Contains(t, said, "spec.includedNamespaces: nothing is left to restore")
	require.NotContains(t, said, "is available when")
}
