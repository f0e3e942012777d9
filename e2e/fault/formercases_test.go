package fault

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// former are the cases of the matrix before jobs had one engine, one in a line. Where a case is
// called otherwise by now, its name follows.
const former = `
backup-runner/before-claim/backup
backup-runner/claimed/backup
backup-runner/before-reserve/backup
backup-runner/reserved/backup
backup-runner/discovered/backup
backup-runner/cut-taken/backup
backup-runner/page-committed/backup
backup-runner/page-committed@12/backup
backup-runner/unit-done/backup
backup-runner/unit-done@9/backup
backup-runner/part-sealed/backup
backup-runner/part-without-sidecar/backup
backup-runner/part-uploaded/backup
backup-runner/part-uploaded@3/backup
backup-runner/record@2/backup
backup-runner/part-recorded/backup
backup-runner/part-recorded@3/backup
backup-runner/first-pass-done/backup
backup-runner/second-pass-done/backup
backup-runner/resumed/backup
backup-runner/before-composition/backup
backup-runner/composition-fixed/backup
backup-runner/plan-read/backup
backup-runner/tarball-composed/backup
backup-runner/sidecars-merged/backup
backup-runner/file-published/backup
backup-runner/file-published@4/backup
backup-runner/before-commit/backup
backup-runner/commit-marked/backup
backup-runner/committed/backup
backup-runner/before-sweep/backup
backup-runner/sweep/backup
backup-runner/sweep@4/backup
backup-runner/swept/backup
backup-runner/before-terminal/backup
backup-runner/terminal-written/backup
backup-runner/event-published/backup
backup-runner/before-hand-over/backup
backup-runner/handed-over/backup
restore-runner/taken/restore restore-runner/claimed/restore
restore-runner/owner-file-written/restore
restore-runner/records-opened/restore
restore-runner/tarball-opened/restore
restore-runner/planned/restore
restore-runner/before-namespace/restore
restore-runner/after-namespace/restore
restore-runner/definition-created/definitions
restore-runner/definition-established/definitions
restore-runner/kinds-discovered/definitions
restore-runner/intended/update
restore-runner/before-create/restore
restore-runner/before-create@100/restore
restore-runner/after-create/restore
restore-runner/after-create@150/restore
restore-runner/after-outcome@50/restore
restore-runner/before-flush/restore
restore-runner/after-flush/restore
restore-runner/after-flush@2/restore
restore-runner/before-owner-patch/owners
restore-runner/after-owner-patch/owners
restore-runner/owner-patch-noted/owners
restore-runner/resumed/restore
restore-runner/before-file/restore
restore-runner/after-file/restore
restore-runner/after-file@3/restore
restore-runner/commit-marked/restore
restore-runner/before-decision/restore
restore-runner/decided/restore
restore-runner/before-terminal-write/restore restore-runner/before-terminal/restore
restore-runner/terminal-written/restore
restore-runner/before-hand-over/restore
restore-runner/handed-over/restore
deletion/before-claim/deletion
deletion/claimed/deletion
deletion/marked-deleting/deletion
deletion/object-removed@2/deletion
deletion/before-marker/deletion
deletion/data-removed/deletion
deletion/restores-removed/deletion
deletion/backup-removed/deletion
deletion/request-removed/deletion
deletion/expiry-before-request/expiry
deletion/expiry-requested/expiry
deletion/sweep-before-objects/sweep
deletion/sweep-object-removed/sweep
deletion/sweep-before-owner/sweep
manifest-indexer/sync-listed/sync
manifest-indexer/sync-before-create/sync
manifest-indexer/sync-created/sync
manifest-indexer/sync-confirmed/sync
manifest-indexer/sync-before-mark/sync
manifest-indexer/sync-before-orphan/orphan
manifest-indexer/location-before-status/location
manifest-indexer/location-status-written/location
manifest-indexer/download-before-status/download
manifest-indexer/download-answered/download
manifest-indexer/server-status-before-answer/status
queue-scheduler/duty-acquired/backup
queue-scheduler/validated/backup
queue-scheduler/queued/backup
queue-scheduler/position-written/overlap
queue-scheduler/before-swap/backup
queue-scheduler/admitted/backup
queue-scheduler/before-ready/backup
queue-scheduler/ready-written/backup
queue-scheduler/before-release/backup
queue-scheduler/released/backup
queue-scheduler/restore-validated/restore
queue-scheduler/restore-admitted/restore
queue-scheduler/cancel-ended/cancel-waiting
queue-scheduler/cancel-taken/cancel
queue-scheduler/cancel-committed/cancel
queue-scheduler/cancel-before-terminal/cancel queue-scheduler/before-terminal/cancel
queue-scheduler/cancel-terminal/cancel queue-scheduler/terminal-written/cancel
pause/backup-runner/claimed/backup
pause/backup-runner/reserved/backup
pause/backup-runner/part-sealed/backup
pause/backup-runner/part-uploaded@2/backup
pause/backup-runner/part-recorded/backup
pause/backup-runner/composition-fixed/backup
pause/backup-runner/tarball-composed/backup
pause/backup-runner/file-published@2/backup
pause/backup-runner/before-commit/backup
pause/backup-runner/commit-marked/backup
pause/backup-runner/committed/backup
pause/backup-runner/before-terminal/backup
pause/restore-runner/taken/restore pause/restore-runner/claimed/restore
pause/restore-runner/before-create@40/restore
pause/restore-runner/after-create@80/restore
pause/restore-runner/before-flush/restore
pause/restore-runner/before-owner-patch/owners
pause/restore-runner/before-file/restore
pause/restore-runner/before-terminal-write/restore pause/restore-runner/before-terminal/restore
leader/queue-scheduler/before-swap
leader/queue-scheduler/admitted
leader/queue-scheduler/before-ready
`

// A case that goes with the code that it was for would be missed by nothing else.
func TestEveryFormerCaseIsOneOfToday(t *testing.T) {
	everything, err := Choose(Part{})
	require.NoError(t, err)
	today := map[string]bool{}
	for _, c := range everything.Kills {
		today[c.String()] = true
	}
	for _, c := range everything.Pauses {
		today["pause/"+c.String()] = true
	}
	for _, point := range everything.Leaders {
		today["leader/"+point] = true
	}
	stands := map[string]string{}
	for line := range strings.Lines(strings.TrimSpace(former)) {
		names := strings.Fields(line)
		before, now := names[0], names[len(names)-1]
		require.True(t, today[now], "nothing stands for %s", before)
		require.Empty(t, stands[now], "%s stands for two cases", now)
		stands[now] = before
	}
	require.Len(t, stands, 136)
}
