package mark

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	"github.com/holdfast-io/holdfast/pkg/archive/storedplan"
	"github.com/holdfast-io/holdfast/pkg/kube"
)

// maxDryRunMessages bounds the messages of a plan that a job lists.
const maxDryRunMessages = 20

// IsDryRun reports a new job that is to be planned only. It is in no queue and gets no claim.
func IsDryRun(job metav1.Object, isNew bool) bool {
	return isNew && job.GetDeletionTimestamp() == nil && job.GetAnnotations()[holdfast.AnnotationDryRun] == "true"
}

// IsValidated reports that this very job, not one it is a copy of, was validated and completed.
func IsValidated(job metav1.Object) bool {
	return job.GetAnnotations()[holdfast.AnnotationValidated] == string(job.GetUID())
}

// FailedDryRun returns the texts that a dry run ends with which failed, or err, if it may pass.
func FailedDryRun(ctx context.Context, err error) (found []string, again error) {
	if ctx.Err() != nil || kube.IsTransient(err) {
		return nil, fmt.Errorf("make the dry run: %w", err)
	}
	return strings.Split(err.Error(), "\n"), nil
}

// SummarizePlan is a plan in a few texts, counts among them. unstored is why it is not stored; nil where it is.
func SummarizePlan(h *storedplan.Header, unstored error, counts ...string) []string {
	first := "dry run: nothing was restored"
	if h.Kind == storedplan.KindBackup {
		first = "dry run: nothing was backed up"
	}
	if unstored != nil {
		first += fmt.Sprintf("; the plan is not stored: %v", unstored)
	} else {
		first += fmt.Sprintf("; annotation %s: %s on a %s of the same spec executes the plan", holdfast.AnnotationPlan, h.ID, h.Kind)
	}
	var actions []string
	for _, action := range slices.Sorted(maps.Keys(h.Counts)) {
		actions = append(actions, fmt.Sprintf("%d %s", h.Counts[action], action))
	}
	return slices.Concat([]string{first, "objects: " + strings.Join(actions, ", ")}, counts, h.Messages[:min(len(h.Messages), maxDryRunMessages)])
}
