package mark

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
)

// Waits is the value of the annotation holdfast.io/waits: what a Restore that has not ended waits for, and
// what waits for it no longer.
type Waits struct {
	UID types.UID `json:"uid"` // of the object; SetWaits sets it
	// SharedDone reports that its definitions and cluster-scoped objects have outcomes, on which later
	// restores may depend.
	SharedDone bool `json:"sharedDone,omitempty"`
	// Idle reports that all of its objects have durable outcomes: it waits for hooks and claims alone.
	Idle bool `json:"idle,omitempty"`
	// For is what has been waited for longest, More how much there is besides.
	For  []Wait `json:"for,omitempty"`
	More int    `json:"more,omitempty"`
}

// Wait is one thing that is waited for.
type Wait struct {
	// Object names the object that waits; "" is the Restore itself.
	Object string    `json:"object,omitempty"`
	Reason string    `json:"reason"`
	Since  time.Time `json:"since"`
}

// Limits of a mark: how much it names, and the length of a text, in bytes.
const (
	maxWaits    = 5
	maxWaitText = 512
)

func (m Waits) owner() types.UID { return m.UID }

// Add adds what is waited for, the longest wait first. Texts are cut, and a time is kept in seconds.
func (m *Waits) Add(w Wait) {
	if len(m.For) == maxWaits {
		m.More++
		return
	}
	if len(w.Reason) > maxWaitText {
		w.Reason = w.Reason[:maxWaitText] + "…"
	}
	w.Since = w.Since.UTC().Truncate(time.Second)
	m.For = append(m.For, w)
}

// Texts are the lines that a person reads.
func (m *Waits) Texts() []string {
	var lines []string
	for _, w := range m.For {
		text := fmt.Sprintf("%s (since %s)", w.Reason, w.Since.Format(time.RFC3339))
		if w.Object != "" {
			text = w.Object + ": " + text
		}
		lines = append(lines, text)
	}
	if m.More > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", m.More))
	}
	return lines
}

// WaitsOf returns the mark of an object; nothing is waited for without one that is its own and readable.
func WaitsOf(obj metav1.Object) Waits { return readMark[Waits](obj, holdfast.AnnotationWaits) }

// SetWaits marks an object, or removes its mark where there is nothing to say.
func SetWaits(obj metav1.Object, m Waits) error {
	if len(m.For) == 0 && !m.SharedDone && !m.Idle {
		ClearWaits(obj)
		return nil
	}
	m.UID = obj.GetUID()
	return setMark(obj, holdfast.AnnotationWaits, m)
}

// ClearWaits removes the mark.
func ClearWaits(obj metav1.Object) { clearMark(obj, holdfast.AnnotationWaits) }
