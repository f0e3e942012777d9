package job

import (
	"context"
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

// pausedObjects is what a restore that ends leaves paused.
type pausedObjects struct {
	// location is the location with the records of what is paused, from the mark on the Restore; ""
	// when nothing was created paused.
	location string
	// read reports that all of the records were read when the objects were resumed.
	read bool
	// names are those of the objects that are still paused.
	names []string
}

// isEmpty reports that everything is resumed.
func (p *pausedObjects) isEmpty() bool { return p.location == "" || p.read && len(p.names) == 0 }

// textWithin lists what is paused, in about limit bytes.
func (p *pausedObjects) textWithin(limit int) string {
	switch {
	case len(p.names) == 0:
		return mark.PausedRemark
	case !p.read:
		return "still paused, perhaps among others: " + joinWithin(p.names, limit)
	}
	return "still paused: " + joinWithin(p.names, limit)
}

// failureReason is the failureReason of a restore that ends with a failure.
func (p *pausedObjects) failureReason(failure error) string {
	if p.isEmpty() {
		return failure.Error()
	}
	if request := cancelRequestOf(failure); request != nil {
		return request.Request.ReasonBut(p.textWithin(namesInReason))
	}
	return failure.Error() + "; " + p.textWithin(namesInReason)
}

// logPaused logs the objects that are left paused, if there are any.
func (p *pausedObjects) logPaused(ctx context.Context, log *slog.Logger, cause error) {
	if !p.isEmpty() {
		log.ErrorContext(ctx, "the restore leaves objects paused", "objects", p.textWithin(namesInLog), "location", p.location, "error", cause)
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
