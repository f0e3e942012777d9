package pausing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/holdfast-io/holdfast/pkg/job/mark"
)

const (
	// namesInReason bounds the names in a failureReason, in bytes, and namesInLog those in a line
	// of the service's log.
	namesInReason = 200
	namesInLog    = 8 << 10
)

// Left is what a restore that ends leaves paused.
type Left struct {
	// Location is the location with the records of what is paused, from the mark on the Restore; ""
	// when nothing was created paused.
	Location string
	// Read reports that all of the records were read when the objects were resumed.
	Read bool
	// Names are those of the objects that are still paused.
	Names []string
}

// IsEmpty reports that everything is resumed.
func (p *Left) IsEmpty() bool { return p.Location == "" || p.Read && len(p.Names) == 0 }

// textWithin lists what is paused, in about limit bytes.
func (p *Left) textWithin(limit int) string {
	switch {
	case len(p.Names) == 0:
		return mark.PausedRemark
	case !p.Read:
		return "still paused, perhaps among others: " + joinWithin(p.Names, limit)
	}
	return "still paused: " + joinWithin(p.Names, limit)
}

// FailureReason is the failureReason of a restore that ends with a failure.
func (p *Left) FailureReason(failure error) string {
	if p.IsEmpty() {
		return failure.Error()
	}
	var request *mark.CancelError
	if errors.As(failure, &request) {
		return request.Request.ReasonBut(p.textWithin(namesInReason))
	}
	return failure.Error() + "; " + p.textWithin(namesInReason)
}

// LogPaused logs the objects that are left paused, if there are any.
func (p *Left) LogPaused(ctx context.Context, log *slog.Logger, cause error) {
	if !p.IsEmpty() {
		log.ErrorContext(ctx, "Failed to resume all paused objects of a restore; will retry", "objects", p.textWithin(namesInLog), "location", p.Location, "error", cause)
	}
}

// joinWithin lists as many names as take no more than limit bytes, at least one, and counts the others.
func joinWithin(names []string, limit int) string {
	var out strings.Builder
	for i, name := range names {
		if i > 0 && out.Len()+len(name) > limit {
			return fmt.Sprintf("%s and %d more", &out, len(names)-i)
		}
		if i > 0 {
			out.WriteString(", ")
		}
		out.WriteString(name)
	}
	return out.String()
}
