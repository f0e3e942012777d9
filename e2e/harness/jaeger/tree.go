package jaeger

import (
	"fmt"
	"slices"
	"strings"
)

// Trace is a trace as Jaeger's query API has it.
type Trace struct {
	TraceID   string
	Spans     []Span
	Processes map[string]struct{ ServiceName string }
}

// Span is a span of a trace.
type Span struct {
	SpanID, OperationName, ProcessID string
	StartTime                        int64 // microseconds
	References                       []struct{ RefType, TraceID, SpanID string }
	Tags                             []struct {
		Key   string
		Value any
	}
}

// Failed reports whether a span has the status of an error.
func (s *Span) Failed() bool {
	for _, tag := range s.Tags {
		if tag.Key == "error" && fmt.Sprint(tag.Value) == "true" {
			return true
		}
	}
	return false
}

// referenceOf returns the first span of the trace that s refers to in one way.
func (t *Trace) referenceOf(s *Span, kind string) string {
	for _, r := range s.References {
		if r.RefType == kind && r.TraceID == t.TraceID {
			return r.SpanID
		}
	}
	return ""
}

// Tree returns a line for each span below the one of its parent, in the order of their begin:
// operation, service, and whether it failed or is linked to another attempt. Spans whose parent was
// never received follow the roots, and say so.
func (t *Trace) Tree() string {
	known := map[string]bool{}
	for i := range t.Spans {
		known[t.Spans[i].SpanID] = true
	}
	below := map[string][]*Span{}
	for i := range t.Spans {
		parent := t.referenceOf(&t.Spans[i], "CHILD_OF")
		below[parent] = append(below[parent], &t.Spans[i])
	}
	var b strings.Builder
	t.writeTree(&b, below, "", 0)
	var lost []string
	for parent := range below {
		if parent != "" && !known[parent] {
			lost = append(lost, parent)
		}
	}
	slices.Sort(lost)
	for _, parent := range lost {
		b.WriteString("(a span that was lost)\n")
		t.writeTree(&b, below, parent, 1)
	}
	return b.String()
}

func (t *Trace) writeTree(b *strings.Builder, below map[string][]*Span, parent string, depth int) {
	spans := below[parent]
	slices.SortFunc(spans, func(x, y *Span) int { return int(x.StartTime - y.StartTime) })
	for _, s := range spans {
		fmt.Fprintf(b, "%s%s [%s]", strings.Repeat("  ", depth), s.OperationName, t.Processes[s.ProcessID].ServiceName)
		if s.Failed() {
			b.WriteString(" failed")
		}
		if t.referenceOf(s, "FOLLOWS_FROM") != "" {
			b.WriteString(" after another attempt")
		}
		b.WriteByte('\n')
		t.writeTree(b, below, s.SpanID, depth+1)
	}
}
