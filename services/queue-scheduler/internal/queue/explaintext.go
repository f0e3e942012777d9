package queue

import (
	"fmt"
	"slices"
	"strings"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
)

// String returns what the first obstacle is or, without one, what the backup is doing.
func (x *Explanation) String() string {
	if len(x.Obstacles) == 0 {
		return idleReason(&x.Job)
	}
	o := x.Obstacles[0]
	jobs := make([]string, len(o.Jobs))
	for i, j := range o.Jobs {
		jobs[i] = strings.ToLower(j.Kind) + " " + j.Name
	}
	more := ""
	if n := len(x.Obstacles) - 1; n == 1 {
		more = "; one more thing is in the way"
	} else if n > 1 {
		more = fmt.Sprintf("; %d more things are in the way", n)
	}
	switch o.Reason {
	case OverlapRunning:
		return fmt.Sprintf("%s runs on %s%s", jobs[0], namespaceList(o.Namespaces), more)
	case RestoreAhead:
		return fmt.Sprintf("%s waits for %s too and goes first%s", jobs[0], namespaceList(o.Namespaces), more)
	case OverlapAhead:
		return fmt.Sprintf("%s is ahead in the queue and needs %s too%s", jobs[0], namespaceList(o.Namespaces), more)
	case NoPlace:
		return fmt.Sprintf("%d of %d backups that may run at once do, or start before it: %s", len(o.Jobs), o.Limit, ledger.JoinNames(jobs))
	case LocationUnavailable, WriteRefused:
		return o.Message
	}
	return ""
}

// idleReason is for a backup with nothing in its way.
func idleReason(j *Job) string {
	switch phase := velerov1.BackupPhase(j.Phase); {
	case j.Waits:
		return "nothing is in its way, it starts with the next pass"
	case phase.Terminal():
		return "it has ended: " + j.Phase
	case j.Object.GetDeletionTimestamp() != nil:
		return "it is being deleted"
	case phase == velerov1.BackupPhaseQueued, phase.IsNew(), phase == velerov1.BackupPhaseReadyToStart:
		return "it is admitted, and starts as soon as a backup-runner takes it"
	case phase == velerov1.BackupPhaseInProgress:
		return "it runs"
	}
	return "it does not wait in the queue any more: " + j.Phase
}

func namespaceList(names []string) string {
	switch {
	case slices.Equal(names, []string{"*"}):
		return "all namespaces"
	case ledger.IsAll(names):
		return "all namespaces but " + ledger.JoinNames(ledger.ExceptedNamespaces(names))
	case len(names) == 1:
		return "namespace " + names[0]
	}
	return "namespaces " + ledger.JoinNames(names)
}
