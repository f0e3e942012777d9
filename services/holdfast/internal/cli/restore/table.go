package restore

import (
	"cmp"
	"strconv"
	"time"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/command"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/job"
)

func columns() []string {
	return []string{"NAME", "BACKUP", "STATUS", "STARTED", "COMPLETED", "ERRORS", "WARNINGS", "CREATED", "SELECTOR"}
}

func compare(a, b *velerov1.Restore) int { return cmp.Compare(a.Name, b.Name) }

func row(r *velerov1.Restore, _ time.Time) []string {
	phase := job.ShownPhase(r, status(r).Phase)
	return []string{
		r.Name, r.Spec.BackupName, string(phase), command.FormatTime(r.Status.StartTimestamp), command.FormatTime(r.Status.CompletionTimestamp),
		strconv.Itoa(r.Status.Errors), strconv.Itoa(r.Status.Warnings), command.FormatTime(&r.CreationTimestamp),
		command.FormatSelector(r.Spec.LabelSelector, r.Spec.OrLabelSelectors), status(r).Items(),
	}
}
