package surface

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
)

const queueService = "holdfast.queue.v1.QueueService/"

// queueByRPC looks at a queue that stands still, because the one backup-runner is stopped, and
// cancels jobs in it: every method of the service is called by now.
func (b *bed) queueByRPC(t *testing.T) {
	b.badQueueRequests(t)
	runner := b.fleet.Of("backup-runner")[0]
	require.NoError(t, runner.Signal(syscall.SIGSTOP))
	t.Cleanup(func() { require.NoError(t, runner.Signal(syscall.SIGCONT)) })
	uids := map[string]string{}
	for _, job := range []struct{ method, request, resource, name, phase string }{
		{"SubmitBackup", `{"name":"first","spec":{"includedNamespaces":["shop"]}}`, "backups", "first", "ReadyToStart"},
		{"SubmitBackup", `{"name":"second","spec":{"includedNamespaces":["sh*"]}}`, "backups", "second", "Queued"},
		{"SubmitBackup", `{"name":"third","spec":{"includedNamespaces":["shop","attic"]}}`, "backups", "third", "Queued"},
		{
			"SubmitBackup", `{"name":"urgent","annotations":{"holdfast.io/priority":"high"},"spec":{"includedNamespaces":["default"]}}`,
			"backups", "urgent", "Queued",
		},
		{"SubmitRestore", `{"name":"back","spec":{"backupName":"by-rpc","includedNamespaces":["shop"]}}`, "restores", "back", ""},
	} {
		uids[job.name], _ = b.callMethod(t, "queue-scheduler", queueService+job.method, job.request)["uid"].(string)
		b.awaitPhase(t, job.resource, job.name, job.phase)
	}
	b.testListed(t)
	b.testExplained(t)
	b.shownToPeople(t)
	b.watchedAndCancelled(t, uids)
	require.NoError(t, runner.Signal(syscall.SIGCONT))
	for _, name := range []string{"first", "second", "urgent"} {
		b.awaitPhase(t, "backups", name, "Completed")
	}
	answer := b.callMethod(t, "queue-scheduler", queueService+"ExplainBackup", `{"name":"second"}`)
	require.Equal(t, "it has ended: Completed", answer["message"])
}

// badQueueRequests requires the fields at fault named, and absent objects reported.
func (b *bed) badQueueRequests(t *testing.T) {
	for _, c := range []struct{ method, request, field string }{
		{"ListQueue", `{"pageSize":1001}`, "page_size"},
		{"ListQueue", `{"pageSize":-1}`, "page_size"},
		{"ListQueue", `{"pageToken":"junk"}`, "page_token"},
		{"ExplainBackup", `{}`, "name"},
		{"ExplainBackup", `{"name":"Not A Name"}`, "name"},
		{"CancelBackup", `{}`, "name"},
		{"CancelBackup", `{"name":"b","requestedBy":"` + strings.Repeat("x", 257) + `"}`, "requested_by"},
		{"CancelRestore", `{"name":"../r"}`, "name"},
		{"SubmitRestore", `{"name":"r"}`, "spec"},
		{"SubmitRestore", `{"name":"r","spec":{"backupName":"b","includedNamespacez":[]}}`, "spec.includedNamespacez"},
	} {
		s := b.requireRefused(t, "queue-scheduler", queueService+c.method, c.request)
		require.Equal(t, invalidArgument, s.Code, c.request)
		require.Equal(t, "INVALID_FIELD", s.machineReason(), c.request)
		require.Equal(t, []string{c.field}, s.faultyFields(), c.request)
	}
	for _, method := range []string{"ExplainBackup", "CancelBackup", "CancelRestore"} {
		s := b.requireRefused(t, "queue-scheduler", queueService+method, `{"name":"absent"}`)
		require.Equal(t, notFound, s.Code, method)
		require.Equal(t, "NOT_FOUND", s.machineReason(), method)
	}
}

// queuePlaces reads entries as "name position".
func queuePlaces(t *testing.T, entries any) []string {
	t.Helper()
	var out []string
	for _, e := range entries.([]any) {
		entry, ok := e.(map[string]any)
		require.True(t, ok)
		position, ok := entry["position"]
		if !ok {
			position = 0 // Protobuf's JSON leaves zeros out
		}
		out = append(out, fmt.Sprintf("%v %v", entry["name"], position))
	}
	return out
}

var standing = []string{"first 0", "back 1", "urgent 2", "second 3", "third 4"}

func (b *bed) testListed(t *testing.T) {
	require.Equal(t, standing, queuePlaces(t, b.callMethod(t, "queue-scheduler", queueService+"ListQueue", `{}`)["entries"]))
	var paged []string
	for token := ""; ; {
		page := b.callMethod(t, "queue-scheduler", queueService+"ListQueue", `{"pageSize":2,"pageToken":"`+token+`"}`)
		paged = append(paged, queuePlaces(t, page["entries"])...)
		if token, _ = page["nextPageToken"].(string); token == "" {
			break
		}
	}
	require.Equal(t, standing, paged)
}

func (b *bed) testExplained(t *testing.T) {
	for name, want := range map[string]string{
		"first":  "",
		"urgent": "WAIT_REASON_NO_PLACE first ",
		"second": "WAIT_REASON_OVERLAP_RUNNING first shop; WAIT_REASON_RESTORE_AHEAD back shop; WAIT_REASON_NO_PLACE first ",
		"third": "WAIT_REASON_OVERLAP_RUNNING first shop; WAIT_REASON_RESTORE_AHEAD back shop; WAIT_REASON_OVERLAP_AHEAD second shop; " +
			"WAIT_REASON_NO_PLACE first ",
	} {
		var answer struct {
			Reason    string
			Message   string
			Entry     struct{ Name, Phase, EffectivePriority string }
			Obstacles []struct {
				Reason     string
				Jobs       []struct{ Name string }
				Namespaces []string
				Since      string
			}
		}
		require.NoError(t, json.Unmarshal([]byte(b.runGrpcurl(t, "queue-scheduler", []string{"-d", `{"name":"` + name + `"}`}, queueService+"ExplainBackup")), &answer))
		var have []string
		for _, o := range answer.Obstacles {
			require.NotEmpty(t, o.Since)
			require.Len(t, o.Jobs, 1)
			have = append(have, o.Reason+" "+o.Jobs[0].Name+" "+strings.Join(o.Namespaces, ","))
		}
		require.Equal(t, want, strings.Join(have, "; "))
		require.Equal(t, name, answer.Entry.Name)
		require.NotEmpty(t, answer.Message)
		require.Equal(t, strings.SplitN(want, " ", 2)[0], answer.Reason)
	}
}

// shownToPeople asks the same with the command line.
func (b *bed) shownToPeople(t *testing.T) {
	path, err := testbed.Product("holdfast")
	require.NoError(t, err)
	holdfast := func(args ...string) string {
		out, err := exec.CommandContext(t.Context(), path, append(args, "-n", "velero", "--kubeconfig", b.cluster.Kubeconfig(),
			"--queue-address", b.serviceAddress("queue-scheduler"))...).CombinedOutput()
		require.NoError(t, err, string(out))
		return string(out)
	}
	var list map[string]any
	require.NoError(t, json.Unmarshal([]byte(holdfast("queue", "get", "-o", "json")), &list))
	require.Equal(t, standing, queuePlaces(t, list["entries"]))
	require.Contains(t, holdfast("queue", "explain", "second"), "backup first runs on namespace shop")
	require.Contains(t, holdfast("queue", "explain", "urgent"), "high")
	require.Contains(t, holdfast("backup", "describe", "second"), "Queue position:               3\n")
}

// watchedAndCancelled watches while two jobs that wait are cancelled.
func (b *bed) watchedAndCancelled(t *testing.T, uids map[string]string) {
	messages := b.startWatch(t)
	require.Equal(t, standing, queuePlaces(t, messages()["changed"]))
	s := b.callMethod(t, "queue-scheduler", queueService+"CancelBackup", `{"name":"third","requestedBy":"the test"}`)
	require.Equal(t, uids["third"], s["uid"])
	b.callMethod(t, "queue-scheduler", queueService+"CancelRestore", `{"name":"back"}`)
	b.awaitPhase(t, "backups", "third", "Failed")
	b.awaitPhase(t, "restores", "back", "Failed")
	ended := time.Now()
	left := map[any]bool{}
	for !left[uids["third"]] || !left[uids["back"]] {
		m := messages()
		if removed, ok := m["removedUids"].([]any); ok {
			for _, uid := range removed {
				left[uid] = true
			}
		}
	}
	require.Less(t, time.Since(ended), 30*time.Second, "a change is told, not found at the next look a minute later")
	refused := b.requireRefused(t, "queue-scheduler", queueService+"CancelBackup", `{"name":"by-rpc"}`)
	require.Equal(t, failedPrecondition, refused.Code)
}

// startWatch calls WatchQueue until the test is over, and returns what waits for the next message.
func (b *bed) startWatch(t *testing.T) func() map[string]any {
	t.Helper()
	path, err := testbed.Binary("grpcurl")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cmd := exec.CommandContext(ctx, path, "-plaintext", "-d", "{}", b.serviceAddress("queue-scheduler"), queueService+"WatchQueue")
	errs := &bytes.Buffer{}
	cmd.Stderr = errs
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		cancel()
		var exit *exec.ExitError
		require.ErrorAs(t, cmd.Wait(), &exit, "it watched to the end")
	})
	decoder := json.NewDecoder(out)
	return func() map[string]any {
		var m map[string]any
		err := decoder.Decode(&m)
		if errors.Is(err, io.EOF) {
			require.Fail(t, "the stream ended", errs.String())
		}
		require.NoError(t, err)
		return m
	}
}
