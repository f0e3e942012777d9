package pluginhost

import (
	"fmt"
	"strings"
	"time"
	"unicode"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	pluginv1 "github.com/holdfast-io/holdfast/pkg/plugin/wire/holdfast/plugin/v1"
	"github.com/holdfast-io/holdfast/pkg/plugin/wire/velero"
)

// Messages about an operation that failed without a reason from its plugin.
const (
	unexplained = "the operation failed, and the plugin does not say why"
	cancelled   = "the operation was cancelled"
)

// progressOf checks a progress of Velero's kinds, whose operations have failed where they are done
// and have an error.
func progressOf(p *velero.OperationProgress) (action.Progress, error) {
	if p == nil {
		return action.Progress{}, fmt.Errorf("%w: progress is missing", ErrMalformed)
	}
	r := action.Progress{
		Done: p.GetCompleted(), Completed: max(p.GetNCompleted(), 0), Total: max(p.GetNTotal(), 0), Units: plainText(p.GetOperationUnits()),
		Description: plainText(p.GetDescription()), Started: convertTimestamp(p.GetStarted()), Updated: convertTimestamp(p.GetUpdated()),
	}
	if r.Done && p.GetErr() != "" {
		r.Err = orDefault(plainText(p.GetErr()), unexplained)
	}
	return r, nil
}

// ownProgressOf checks a progress of Holdfast's own contract.
func ownProgressOf(p *pluginv1.OperationProgress) (action.Progress, error) {
	if p == nil {
		return action.Progress{}, fmt.Errorf("%w: progress is missing", ErrMalformed)
	}
	r := action.Progress{
		Completed: max(p.GetDone(), 0), Total: max(p.GetTotal(), 0), Units: plainText(p.GetUnit()),
		Description: plainText(p.GetDescription()), Started: convertTimestamp(p.GetStarted()), Updated: convertTimestamp(p.GetUpdated()),
	}
	switch p.GetState() {
	case pluginv1.OperationState_OPERATION_STATE_PENDING, pluginv1.OperationState_OPERATION_STATE_RUNNING:
	case pluginv1.OperationState_OPERATION_STATE_SUCCEEDED:
		r.Done = true
	case pluginv1.OperationState_OPERATION_STATE_FAILED:
		r.Done, r.Err = true, orDefault(plainText(p.GetError()), unexplained)
	case pluginv1.OperationState_OPERATION_STATE_CANCELLED:
		r.Done, r.Err = true, cancelled
	default:
		return action.Progress{}, fmt.Errorf("%w: progress.state: unknown value %d", ErrMalformed, p.GetState())
	}
	return r, nil
}

// convertTimestamp returns the zero time for an absent or impossible timestamp.
func convertTimestamp(t *timestamppb.Timestamp) time.Time {
	if !t.IsValid() {
		return time.Time{}
	}
	return t.AsTime()
}

// plainText makes a plugin's text fit for one line in logs, results and terminals.
func plainText(text string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, clipText(text)))
}
