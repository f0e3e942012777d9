package validate

import (
	"errors"
	"fmt"
	"strings"

	"github.com/holdfast-io/holdfast/pkg/errgrpc"
)

// Problem is one reason why an object cannot be run.
type Problem struct {
	Field   string // path below the object, "spec.hooks"; empty when Message names it
	Message string
	// Passing means that it may go away by itself: the backup waits for that.
	Passing bool
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
	return errgrpc.Field(field, "%s", p.Message)
}

// Problems is everything found wrong with one object.
type Problems []Problem

// Err is all problems as field violations; nil without any.
func (p Problems) Err() error {
	errs := make([]error, len(p))
	for i := range p {
		errs[i] = p[i].Err()
	}
	return errors.Join(errs...)
}

// LastingProblems are the problems that no waiting solves.
func (p Problems) LastingProblems() Problems {
	var out Problems
	for _, problem := range p {
		if !problem.Passing {
			out = append(out, problem)
		}
	}
	return out
}

// What status.validationErrors holds is bounded, whatever a spec lists.
const (
	maxProblems     = 50
	maxProblemBytes = 1 << 10
)

// Strings is status.validationErrors: the first problems, and how many more there are.
func (p Problems) Strings() []string {
	shown := p[:min(len(p), maxProblems)]
	out := make([]string, len(shown), len(shown)+1)
	for i, problem := range shown {
		out[i] = cutText(problem.String())
	}
	if more := len(p) - len(shown); more > 0 {
		out = append(out, fmt.Sprintf("and %d more", more))
	}
	return out
}

func cutText(text string) string {
	if len(text) <= maxProblemBytes {
		return text
	}
	return strings.ToValidUTF8(text[:maxProblemBytes], "") + "…"
}

func (p *Problems) addProblem(field, format string, args ...any) {
	*p = append(*p, Problem{Field: field, Message: fmt.Sprintf(format, args...)})
}

// addUnsupported notes a field that is set and not built yet.
func (p *Problems) addUnsupported(set bool, field string) {
	if set {
		p.addProblem(field, "not supported by Holdfast yet")
	}
}
