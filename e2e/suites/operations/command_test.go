package operations

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/e2e/harness/site"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// commandLine runs the command line against the monitor.
func (b *bed) commandLine(t *testing.T) func(args ...string) (string, error) {
	t.Helper()
	cli, address := b.CLI(t), b.Fleet.Of("async-operation-monitor")[0].GRPC
	return func(args ...string) (string, error) {
		return cli.Run(t.Context(), append(args, "--operations-address", address, "--operations-ca-file", b.authority.CAFile, "--operations-token-file", b.tokenFile)...)
	}
}

// runCommand requires success.
func (b *bed) runCommand(t *testing.T, args ...string) string {
	t.Helper()
	out, err := b.commandLine(t)(args...)
	require.NoError(t, err)
	return out
}

// byCommand follows and cancels operations by the command line: the backup continues with the others.
func (b *bed) byCommand(t *testing.T) {
	const name = "by-command"
	b.Namespace(t, name)
	b.createOwnObject(t, name, "endless", operationOrder{Seconds: 1e6})
	b.createOwnObject(t, name, "short", operationOrder{Seconds: 1})
	b.createOwnObject(t, name, "other", operationOrder{Seconds: 1e6})
	b.createVendorObject(t, name, "foreign", operationOrder{Seconds: 1})
	b.Backup(t, name, b.bucket, name)
	b.awaitWaiting(t, name, velerov1.BackupPhaseWaitingForPluginOperations)

	var list struct {
		Operations []struct{ ID, Action, Name, Phase, Description string }
	}
	ids := map[string]string{}
	require.Eventually(t, func() bool {
		require.NoError(t, json.Unmarshal([]byte(b.runCommand(t, "operation", "list", "backup/"+name, "-o", "json")), &list))
		settled := 0
		for _, o := range list.Operations {
			ids[o.Name] = o.ID
			if o.Name == "endless" && o.Description != "" || (o.Name == "short" || o.Name == "foreign") && o.Phase == "Completed" {
				settled++
			}
		}
		return settled == 3
	}, site.Patience, site.Look, "the operations are followed")
	require.Contains(t, b.runCommand(t, "operation", "logs", "backup/"+name, ids["endless"]), `info the work began item="endless"`)

	var out string
	watched, watch := make(chan error, 1), b.commandLine(t)
	go func() {
		var err error
		out, err = watch("operation", "watch", "backup/"+name)
		watched <- err
	}()
	for range 2 { // the second changes nothing
		b.runCommand(t, "operation", "cancel", "backup/"+name, ids["endless"])
	}
	require.Contains(t, b.runCommand(t, "operation", "cancel", "backup/"+name, "--all"), "was asked to end")
	require.NoError(t, <-watched)
	require.Contains(t, out, string(velerov1.BackupPhasePartiallyFailed), "it ends with the backup")
	require.LessOrEqual(t, strings.Count(out, "Completed"), 2, "what did not change is not printed again")
	b.awaitEnd(t, name, velerov1.BackupPhasePartiallyFailed, 2, 2)
	for _, item := range []string{"endless", "other"} {
		require.Len(t, b.calls.callsOf(t, "cancel", name)[item], 1, "%s is asked to cancel once", item)
	}
	require.Equal(t, 2, strings.Count(b.readResults(t, name), "cancelled by "), b.readResults(t, name))
}
