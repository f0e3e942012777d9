package operations

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-io/holdfast/e2e/harness/site"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/plugin"
)

// insideAction is the action on ServiceAccounts whose operations live in the plugin's process.
const insideAction = "own.example.com/inside"

// inside is the action, and the operations in this process.
type inside struct {
	plugin.Everything
	calls callNotes

	mu   sync.Mutex
	runs map[string]*insider
}

// insider is one operation.
type insider struct {
	order        operationOrder
	backup, item string
	began        time.Time
	cancelled    bool
}

func newInside(c callNotes) *inside { return &inside{calls: c, runs: map[string]*insider{}} }

// Start implements plugin.AsyncBackupItemAction.
func (a *inside) Start(_ context.Context, in *plugin.AsyncBackupInput) (*plugin.AsyncBackupOutput, error) {
	text, ok := in.Item.GetAnnotations()[orderKey]
	if !ok {
		return nil, nil
	}
	run := &insider{backup: in.Backup.Name(), item: in.Item.GetName(), began: time.Now()}
	if err := json.Unmarshal([]byte(text), &run.order); err != nil {
		return nil, err
	}
	if err := a.calls.noteCall(notedCall{what: "start", backup: run.backup, item: run.item, key: in.IdempotencyKey}); err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.runs[in.IdempotencyKey] = run
	return &plugin.AsyncBackupOutput{OperationID: in.IdempotencyKey, InProcess: true}, nil
}

// Progress implements plugin.Operations.
func (a *inside) Progress(_ context.Context, op plugin.Operation) (plugin.Progress, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	run, ok := a.runs[op.ID]
	if !ok {
		return plugin.Progress{}, plugin.ErrNoOperation
	}
	if err := a.calls.notePolled(insideAction[len("own.example.com/"):], run.backup); err != nil {
		return plugin.Progress{}, err
	}
	if run.order.Start == held {
		run.began = a.calls.releasedSince(run.backup)
	}
	p := plugin.Progress{State: plugin.Running, Done: 1, Total: total, Unit: unit, Description: fmt.Sprint("in process ", os.Getpid()), Started: run.began}
	switch {
	case run.cancelled:
		p.State = plugin.Cancelled
	case run.began.IsZero():
		p.State = plugin.Pending
	case time.Since(run.began).Seconds() >= run.order.Seconds:
		p.State, p.Done = plugin.Succeeded, total
	}
	return p, nil
}

// Cancel implements plugin.Operations.
func (a *inside) Cancel(_ context.Context, op plugin.Operation, _ time.Duration) (bool, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	run, ok := a.runs[op.ID]
	if !ok {
		return false, plugin.ErrNoOperation
	}
	run.cancelled = true
	return true, a.calls.noteCall(notedCall{what: "cancel", backup: run.backup, item: run.item})
}

// Logs implements plugin.Operations.
func (a *inside) Logs(_ context.Context, op plugin.Operation, _ plugin.LogOptions) iter.Seq2[plugin.LogLine, error] {
	return func(yield func(plugin.LogLine, error) bool) {
		a.mu.Lock()
		run, ok := a.runs[op.ID]
		a.mu.Unlock()
		if !ok {
			yield(plugin.LogLine{}, plugin.ErrNoOperation)
			return
		}
		yield(plugin.LogLine{Level: "info", Message: "copying in the process", Fields: map[string]string{"item": run.item}}, nil)
	}
}

// createInsideObject creates an object that an operation in the plugin's process is begun for.
func (b *bed) createInsideObject(t *testing.T, namespace, name string, o operationOrder) {
	t.Helper()
	require.NoError(t, b.Client.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: orderedMeta(t, namespace, name, o)}))
}

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

// byCommand follows and cancels operations in and outside of the plugin's process by the command
// line: the backup continues with the others.
func (b *bed) byCommand(t *testing.T) {
	const name = "by-command"
	b.Namespace(t, name)
	b.createInsideObject(t, name, "endless", operationOrder{Seconds: 1e6})
	b.createInsideObject(t, name, "short", operationOrder{Seconds: 1})
	b.createOwnObject(t, name, "outside", operationOrder{Seconds: 1e6})
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
	}, site.Patience, site.Look, "the operations in the process and outside of it are followed")
	require.Contains(t, b.runCommand(t, "operation", "logs", "backup/"+name, ids["endless"]), `info copying in the process item="endless"`)

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
	for _, item := range []string{"endless", "outside"} {
		require.Len(t, b.calls.callsOf(t, "cancel", name)[item], 1, "%s is asked to cancel once", item)
	}
	require.Equal(t, 2, strings.Count(b.readResults(t, name), "cancelled by "), b.readResults(t, name))
}

// awaitInsiders waits until the plugin is asked about operations in its process from now on, and returns
// the process.
func (b *bed) awaitInsiders(t *testing.T, backup string) (pid int) {
	t.Helper()
	from := time.Now()
	require.Eventually(t, func() bool {
		var at time.Time
		pid, at = b.calls.lastPoll(t, "inside", backup)
		return at.After(from)
	}, site.Patience, site.Look, "the operation in the process is asked about")
	return pid
}

// homeDies kills the process of an operation: it has failed with that reason, and one elsewhere continues. The end of
// another process does not affect it.
func (b *bed) homeDies(t *testing.T) {
	const name = "plugin-gone"
	b.Namespace(t, name)
	b.createInsideObject(t, name, "one", operationOrder{Seconds: 1e6})
	b.createOwnObject(t, name, "two", operationOrder{Seconds: 1})
	b.Backup(t, name, b.bucket, name)
	b.awaitWaiting(t, name, velerov1.BackupPhaseWaitingForPluginOperations)
	b.awaitInsiders(t, name)
	b.Kill(t, "async-operation-monitor")
	require.NoError(t, syscall.Kill(b.awaitInsiders(t, name), syscall.SIGKILL))
	b.awaitEnd(t, name, velerov1.BackupPhasePartiallyFailed, 1, 1)
	require.Contains(t, b.readResults(t, name), "the process that the operation lived in is gone")
	require.Len(t, b.calls.callsOf(t, "start", name)["one"], 1)
}

// homeDrains stops the runner: it exits once the operations in its plugins' processes have ended.
func (b *bed) homeDrains(t *testing.T) {
	const name = "drained"
	b.Namespace(t, name)
	b.createInsideObject(t, name, "one", operationOrder{Seconds: 8})
	b.Backup(t, name, b.bucket, name)
	b.awaitWaiting(t, name, velerov1.BackupPhaseWaitingForPluginOperations)
	b.awaitInsiders(t, name)
	b.Fleet.Of("backup-runner")[0].Stop(site.Patience)
	_, err := b.Fleet.Revive(t.Context())
	require.NoError(t, err)
	b.awaitEnd(t, name, velerov1.BackupPhaseCompleted, 1, 0)
}
