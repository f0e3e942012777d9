package job

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/holdfast-io/holdfast/pkg/job/paused"
)

const (
	// namesInReason bounds the names in a failureReason, in bytes, and namesInLog those in a line
	// of the service's log.
	namesInReason = 200
	namesInLog    = 8 << 10
)

// pausing is what a restore that ends leaves paused.
type pausing struct {
	// location is the location with the records of what is paused, from the mark on the Restore; ""
	// when nothing was created paused.
	location string
	// read reports that all of the records were read when the objects were resumed.
	read bool
	// names are those of the objects that are still paused.
	names []string
}

// none reports that everything is resumed.
func (p *pausing) none() bool { return p.location == "" || p.read && len(p.names) == 0 }

// text lists what is paused, in about limit bytes.
func (p *pausing) text(limit int) string {
	switch {
	case len(p.names) == 0:
		return paused.Remark
	case !p.read:
		return "still paused, perhaps among others: " + within(p.names, limit)
	}
	return "still paused: " + within(p.names, limit)
}

// reason is the failureReason of a restore that ends with a failure.
func (p *pausing) reason(failure *fatalError) string {
	if p.none() {
		return failure.Error()
	}
	if request := cancelled(failure); request != nil {
		return request.Request.ReasonBut(p.text(namesInReason))
	}
	return failure.Error() + "; " + p.text(namesInReason)
}

// tell logs the objects that are left paused, if there are any.
func (p *pausing) tell(ctx context.Context, log *slog.Logger, cause error) {
	if !p.none() {
		log.ErrorContext(ctx, "the restore leaves objects paused", "objects", p.text(namesInLog), "location", p.location, "error", cause)
	}
}

// within lists as many names as take no more than limit bytes, at least one, and counts the others.
func within(names []string, limit int) string {
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
