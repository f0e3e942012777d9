package operation

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit"
)

const (
	// maxRunning bounds the operations that a summary names.
	maxRunning = 10
	// maxSummary bounds the annotation and maxText each text of an action in it, in bytes.
	maxSummary = 16 << 10
	maxText    = 256
)

// Summary is the value of the annotation holdfast.io/operations (JSON): how far the operations of a
// job are.
type Summary struct {
	Total     int `json:"total"`
	Completed int `json:"completed"`
	Failed    int `json:"failed"`
	// Running are the first ten operations that have not ended.
	Running []Running `json:"running,omitempty"`
}

// Running is one operation of a Summary.
type Running struct {
	Action string `json:"action"`
	ID     string `json:"id"`
	// Item is what it was begun for, as Resource.String writes it.
	Item        string     `json:"item"`
	Phase       Phase      `json:"phase"`
	Completed   int64      `json:"completed,omitempty"`
	Total       int64      `json:"total,omitempty"`
	Units       string     `json:"units,omitempty"`
	Description string     `json:"description,omitempty"`
	Created     *time.Time `json:"created,omitempty"`
	Started     *time.Time `json:"started,omitempty"`
	Updated     *time.Time `json:"updated,omitempty"`
}

// Summary is how far the operations are. Long texts of actions are truncated.
func (l *Log) Summary() Summary {
	sum := Summary{Total: len(l.states)}
	sum.Completed, sum.Failed = l.Count()
	for i := range l.states {
		s, op := &l.states[i], &l.list.Operations[i]
		if s.Phase.Ended() {
			continue
		}
		if len(sum.Running) == maxRunning {
			break
		}
		sum.Running = append(sum.Running, Running{
			Action: clipText(op.Action), ID: clipText(op.ID), Item: clipText(op.Item.String()), Phase: s.Phase, Completed: s.Completed, Total: s.Total,
			Units: clipText(s.Units), Description: clipText(s.Description), Created: &op.Created, Started: s.Started, Updated: s.Updated,
		})
	}
	return sum
}

// clipText cuts a text of an action.
func clipText(text string) string { return ClipTo(text, maxText) }

// ClipTo cuts a text of more than limit bytes at a rune.
func ClipTo(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	cut := limit
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return strings.Clone(text[:cut]) + "..."
}

// WriteSummary writes the summary into the annotations of a job. Where it is too long it names fewer
// operations.
func (s Summary) WriteSummary(obj metav1.Object) error {
	for {
		text, err := json.Marshal(s)
		if err != nil {
			return fmt.Errorf("annotation %s: %w", holdfast.AnnotationOperations, err)
		}
		if len(text) <= maxSummary {
			annotations := obj.GetAnnotations()
			if annotations == nil {
				annotations = map[string]string{}
			}
			annotations[holdfast.AnnotationOperations] = string(text)
			obj.SetAnnotations(annotations)
			return nil
		}
		s.Running = s.Running[:len(s.Running)-1]
	}
}

// ReadSummary reads the summary of a job; false when there is none. A text that is too long, or not
// understood, is an error.
func ReadSummary(obj metav1.Object) (Summary, bool, error) {
	var s Summary
	text, ok := obj.GetAnnotations()[holdfast.AnnotationOperations]
	if !ok {
		return s, false, nil
	}
	if len(text) > maxSummary {
		return s, false, fmt.Errorf("annotation %s: %d bytes are too many", holdfast.AnnotationOperations, len(text))
	}
	if err := jsonlimit.Unmarshal([]byte(text), &s, maxSummaryDecoded); err != nil {
		return Summary{}, false, fmt.Errorf("annotation %s: %w", holdfast.AnnotationOperations, err)
	}
	return s, true, nil
}

// maxSummaryDecoded bounds what a summary takes in memory: a text of empty objects is larger there.
const maxSummaryDecoded = 64 * maxSummary
