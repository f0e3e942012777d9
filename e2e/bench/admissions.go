package bench

import (
	"context"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

const (
	admissionsQueued = 1_000
	endedName        = "ended-" // and a number
	endedNote        = 1_000    // bytes of an annotation, as operators add them
)

// admissions measures what an admission costs queue-scheduler while many backups have ended: its
// memory from start to end, and its CPU time and the bytes it reads from the API server while the
// queue drains. They are to stay below 96 MiB, 10 ms and 100,000 bytes.
func (b *bench) admissions(ctx context.Context, ended int) error {
	if err := b.createBackups(ctx, ended, endedBackup); err != nil {
		return err
	}
	return b.withQueue(ctx, "queue-admissions", admissionsQueued, (*queueBench).measureAdmissions)
}

func (q *queueBench) measureAdmissions(ctx context.Context) error {
	if err := q.submitBackups(ctx); err != nil {
		return err
	}
	if _, err := q.awaitSettled(ctx); err != nil {
		return err
	}
	pid := q.scheduler.Pid()
	used, err := cpuTime(pid)
	if err != nil {
		return err
	}
	read := q.writes.read.Load()
	drained, err := q.drainQueue(ctx, queueDrained)
	if err != nil {
		return err
	}
	if _, err := q.awaitSettled(ctx); err != nil { // the places of those that ended are taken by others
		return err
	}
	usedAfter, err := cpuTime(pid)
	if err != nil {
		return err
	}
	peak, err := peakRSS(pid)
	if err != nil {
		return err
	}
	q.figures.Set("queue.peak_rss_mib", peak)
	q.figures.Set("queue.cpu_ms_per_admission", float64((usedAfter-used).Milliseconds())/float64(drained))
	q.figures.Set("queue.bytes_read_per_admission", float64(q.writes.read.Load()-read)/float64(drained))
	return nil
}

// endedBackup is as large as backups of a schedule are.
func endedBackup(i int) *velerov1.Backup {
	now := metav1.NewTime(time.Now())
	return &velerov1.Backup{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: serverNamespace, Name: fmt.Sprintf(endedName+"%05d", i),
			Labels:      map[string]string{velerov1.LabelScheduleName: "daily"},
			Annotations: map[string]string{"example.com/note": strings.Repeat("x", endedNote)},
		},
		Spec: velerov1.BackupSpec{IncludedNamespaces: []string{fmt.Sprintf("team-%d", i)}},
		Status: velerov1.BackupStatus{
			Phase: velerov1.BackupPhaseCompleted, StartTimestamp: &now, CompletionTimestamp: &now,
			Progress: &velerov1.BackupProgress{TotalItems: 100, ItemsBackedUp: 100},
		},
	}
}
