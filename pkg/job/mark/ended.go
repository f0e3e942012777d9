package mark

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// Events records Events about an object, without waiting for anything; an events.EventRecorder is
// one.
type Events interface {
	Eventf(regarding, related runtime.Object, eventtype, reason, action, note string, args ...any)
}

// RecordWarning records a warning about an object, with at most 250 characters of its text; nil events
// record nothing.
func RecordWarning(events Events, obj runtime.Object, reason, action, text string) {
	if events != nil {
		events.Eventf(obj, nil, corev1.EventTypeWarning, reason, action, "%.250s", text)
	}
}

// RecordEnd records that a Backup or Restore got its terminal phase, which is the Event's reason. The
// Event is a warning unless the phase is Completed. Other objects, other phases and nil events
// record nothing. It is for the process that wrote the phase, once that is durable.
func RecordEnd(events Events, obj client.Object) {
	if events == nil {
		return
	}
	phase, note := terminalPhase(obj)
	if phase == "" {
		return
	}
	kind := corev1.EventTypeWarning
	if phase == string(velerov1.BackupPhaseCompleted) { // the same word for restores
		kind = corev1.EventTypeNormal
	}
	// At most 1024 bytes (events.k8s.io/v1), and a rune has up to four.
	events.Eventf(obj, nil, kind, phase, "End", "%.250s", note)
}

// terminalPhase returns the phase, empty unless it is terminal, and what there is to know of it.
func terminalPhase(obj client.Object) (phase, note string) {
	switch o := obj.(type) {
	case *velerov1.Backup:
		if s := &o.Status; s.Phase.Terminal() {
			items := 0
			if s.Progress != nil {
				items = s.Progress.ItemsBackedUp
			}
			return string(s.Phase), summaryText(items, s.Warnings, s.Errors, s.FailureReason, s.ValidationErrors)
		}
	case *velerov1.Restore:
		if s := &o.Status; s.Phase.Terminal() {
			items := 0
			if s.Progress != nil {
				items = s.Progress.ItemsRestored
			}
			return string(s.Phase), summaryText(items, s.Warnings, s.Errors, s.FailureReason, s.ValidationErrors)
		}
	}
	return "", ""
}

func summaryText(items, warnings, errors int, reason string, validation []string) string {
	if len(validation) > 0 {
		return strings.Join(validation, "; ")
	}
	counts := fmt.Sprintf("%d items, %d warnings, %d errors", items, warnings, errors)
	if reason == "" {
		return counts
	}
	return reason + " (" + counts + ")"
}
