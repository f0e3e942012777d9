package poll

import (
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/pkg/job/operation"
)

// timeoutReason returns the reason to cancel an operation that took too long.
func timeoutReason(limit time.Duration) string { return fmt.Sprintf("timed out after %s", limit) }

// lostPrefix begins the text of an operation that is not known any more.
const lostPrefix = "the operation is lost: "

// lostReason is why an operation failed that its action does not know.
func lostReason(err error) string { return clipText(lostPrefix + err.Error()) }

// explainFailure says why an operation failed that ended while it was being cancelled, with that error or
// without one. What a cancelled operation did is not relied on.
func explainFailure(intent *operation.Cancel, answer *operation.Answer, ended string) string {
	if ended == "" {
		ended = "it completed"
	}
	switch {
	case answer == nil && strings.HasPrefix(ended, lostPrefix):
		return clipText(fmt.Sprintf("%s, the cancel was not acknowledged: %s", intent.Reason, ended))
	case answer == nil: // it did not return yet, or another process has it
		return clipText(fmt.Sprintf("%s, the answer to the cancel is not known: %s", intent.Reason, ended))
	case answer.Accepted:
		return clipText(fmt.Sprintf("%s, the cancel was acknowledged: %s", intent.Reason, ended))
	case answer.Error != "":
		return clipText(fmt.Sprintf("%s, the cancel failed: %s; then the operation ended: %s", intent.Reason, answer.Error, ended))
	}
	return clipText(fmt.Sprintf("%s, the cancel was refused; then the operation ended: %s", intent.Reason, ended))
}

// abandonedBy is why an operation failed that did not end while it was being cancelled. problem is
// why the last call about it failed.
func abandonedBy(intent *operation.Cancel, answer *operation.Answer, problem string) string {
	what := "the cancel was refused"
	switch {
	case answer == nil:
		what = "the cancel was not acknowledged"
	case answer.Error != "":
		what = "the cancel failed: " + answer.Error
	case answer.Accepted:
		what = "the cancel was acknowledged, but the operation did not end in time"
	}
	text := fmt.Sprintf("%s, %s; %s", intent.Reason, what, operation.MayStillRun)
	if problem != "" {
		text += "; the last poll failed: " + problem
	}
	return clipText(text)
}

const (
	// maxText bounds a text that is recorded, in bytes.
	maxText = 1 << 10
	// maxReason bounds the reason in it.
	maxReason = 512
)

// clipText cuts a text that is recorded.
func clipText(text string) string { return operation.ClipTo(text, maxText) }
