package job

import (
	"fmt"
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
)

const (
	// tellAfter is after how long a wait is told.
	tellAfter = 5 * time.Second
	// maxTold and maxWaitEvents bound the waits that one holder of a restore tells in its log, and as
	// Events.
	maxTold       = 100
	maxWaitEvents = 20
)

// waitTeller tells what a restore waits for: in its log, as Events, and in the mark that describe shows.
// One goroutine uses it.
type waitTeller struct {
	*session
	recorder *outcome.Recorder
	told     map[toldWait]bool
	lines    int
	written  mark.Waits // as the object has it
}

// toldWait is a wait, whatever its reason is by now.
type toldWait struct {
	node   int32
	object string
	since  time.Time
}

// tellWaits tells the waits that began tellAfter ago and were not told before. It returns the mark.
func (t *waitTeller) tellWaits() mark.Waits {
	var m mark.Waits
	open := map[toldWait]bool{}
	for _, w := range t.recorder.Waits(t.cfg.Clock.Now().Add(-tellAfter)) {
		m.Add(mark.Wait{Object: w.Name(), Reason: w.Reason, Since: w.Since})
		key := toldWait{w.Node, w.Object, w.Since}
		if t.told[key] || t.lines < maxTold {
			open[key] = true
		}
		if open[key] && !t.told[key] {
			t.tellWait(&w)
		}
	}
	t.told = open
	return m
}

// tellWait tells a wait that was not told before.
func (t *waitTeller) tellWait(w *outcome.Wait) {
	t.lines++
	text := fmt.Sprintf("%s (since %s)", w.Reason, w.Since.UTC().Format(time.RFC3339))
	line := text
	if w.Node == outcome.General && w.Object != "" {
		line = w.Object + ": " + text
	}
	t.recorder.Info(w.Node, line)
	if t.cfg.Events == nil || t.lines > maxWaitEvents {
		return
	}
	if w.Object != "" {
		text = w.Name() + ": " + text
	}
	t.cfg.Events.Eventf(t.restore, nil, corev1.EventTypeNormal, "Waiting", "Restore", "%.250s", text)
}

// isWritten reports that the object has this mark.
func (t *waitTeller) isWritten(m mark.Waits) bool {
	m.UID = t.written.UID
	return reflect.DeepEqual(m, t.written)
}
