package backup

import (
	"cmp"
	"regexp"
	"strconv"
	"time"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/command"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/job"
)

// bySchedule matches the names of backups made by a schedule.
var bySchedule = regexp.MustCompile(`^(.*)-\d{14}$`)

// compare orders by name; backups of one schedule come newest first.
func compare(a, b *velerov1.Backup) int {
	nameA, nameB := bySchedule.FindStringSubmatch(a.Name), bySchedule.FindStringSubmatch(b.Name)
	if nameA != nil && nameB != nil && nameA[1] == nameB[1] {
		return cmp.Compare(b.Name, a.Name)
	}
	return cmp.Compare(a.Name, b.Name)
}

func columns() []string {
	return []string{"NAME", "STATUS", "ERRORS", "WARNINGS", "CREATED", "EXPIRES", "STORAGE LOCATION", "QUEUE POSITION", "SELECTOR"}
}

func row(b *velerov1.Backup, now time.Time) []string {
	position := ""
	if b.Status.QueuePosition > 0 {
		position = strconv.Itoa(b.Status.QueuePosition)
	}
	return []string{
		b.Name, string(job.ShownPhase(b, b.Status.Phase)), strconv.Itoa(b.Status.Errors), strconv.Itoa(b.Status.Warnings),
		command.FormatTime(b.Status.StartTimestamp), command.FormatUntil(expiration(b), now), b.Spec.StorageLocation, position,
		command.FormatSelector(b.Spec.LabelSelector, b.Spec.OrLabelSelectors), command.FormatTime(b.Status.CompletionTimestamp), status(b).Items(),
	}
}

// expiration is the one in the status or, before there is one, what follows from the TTL.
func expiration(b *velerov1.Backup) time.Time {
	switch {
	case b.Status.Expiration != nil:
		return b.Status.Expiration.Time
	case b.Spec.TTL.Duration > 0:
		return b.CreationTimestamp.Add(b.Spec.TTL.Duration)
	default:
		return time.Time{}
	}
}
