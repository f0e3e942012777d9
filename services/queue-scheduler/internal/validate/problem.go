package validate

import (
	"fmt"

	"github.com/holdfast-io/holdfast/pkg/grpcerr"
)

// Problem is one reason why an object cannot be run.
type Problem struct {
	Field   string // path below the object, "spec.hooks"; empty when Message names it
	Message string
}

// String is the text for status.validationErrors.
func (p Problem) String() string {
	if p.Field == "" {
		return p.Message
	}
	return p.Field + ": " + p.Message
}

// Err is the problem as an error for gRPC: a field violation.
func (p Problem) Err() error {
	field := p.Field
	if field == "" {
		field = "spec"
	}
	return grpcerr.Field(field, "%s", p.Message)
}

// Problems is everything found wrong with one object.
type Problems []Problem

// Strings is status.validationErrors.
func (p Problems) Strings() []string {
	out := make([]string, len(p))
	for i, problem := range p {
		out[i] = problem.String()
	}
	return out
}

func (p *Problems) add(field, format string, args ...any) {
	*p = append(*p, Problem{Field: field, Message: fmt.Sprintf(format, args...)})
}

// unsupported notes a field that is set and not built yet.
func (p *Problems) unsupported(set bool, field string) {
	if set {
		p.add(field, "not supported by Holdfast yet")
	}
}
