package job

import (
	"context"
	"fmt"
	"reflect"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/pkg/service"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
)

const (
	// reportAfter is after how long a wait is reported.
	reportAfter = 5 * time.Second
	// idleAfter is for how long hooks and claims alone are waited for until the restore is idle.
	idleAfter = 10 * time.Second
	// maxIdleObjects bounds the objects whose names a process holds for the restores without a place, of about
	// idleBytes each.
	maxIdleObjects = 800_000
	idleBytes      = 64
	// maxReported and maxWaitEvents bound the waits that one holder of a restore reports in its log, and as
	// Events.
	maxReported   = 100
	maxWaitEvents = 20
)

// waitReporter reports what a restore waits for: in its log, as Events, and in the mark that describe shows.
// One goroutine uses it.
type waitReporter struct {
	*session
	recorder *outcome.Recorder
	reported map[waitKey]bool
	lines    int
	written  mark.Waits // as the object has it
	// restored is when every object had a durable outcome; nil before.
	restored  *atomic.Pointer[time.Time]
	placeless bool
	// leavePlace is called once the object has the mark that the restore is idle, until it reports true.
	leavePlace func() bool
}

// waitKey is a wait, whatever its reason is by now.
type waitKey struct {
	node   int32
	object string
	since  time.Time
}

// reportWaits reports the waits that began reportAfter ago and were not reported before. It returns the mark.
func (t *waitReporter) reportWaits() mark.Waits {
	var m mark.Waits
	open := map[waitKey]bool{}
	for _, w := range t.recorder.Waits(t.cfg.Clock.Now().Add(-reportAfter)) {
		m.Add(mark.Wait{Object: w.Name(), Reason: w.Reason, Since: w.Since})
		key := waitKey{w.Node, w.Object, w.Since}
		if t.reported[key] || t.lines < maxReported {
			open[key] = true
		}
		if open[key] && !t.reported[key] {
			t.reportWait(&w)
		}
	}
	t.reported = open
	m.SharedDone = t.written.SharedDone || t.recorder.SharedLeft() == 0
	m.Idle = t.written.Idle || t.isIdle()
	return m
}

// isIdle reports that hooks and claims alone have been waited for, by this holder or one before.
func (t *waitReporter) isIdle() bool {
	at := t.restored.Load()
	return at != nil && (t.written.Idle || t.cfg.Clock.Since(*at) >= idleAfter)
}

// noteWritten notes that the object has a mark. With that of an idle restore the place goes to others.
func (t *waitReporter) noteWritten(m mark.Waits) {
	t.written = m
	if m.Idle && !t.placeless && t.isIdle() {
		if t.placeless = t.leavePlace(); t.placeless {
			t.log.Info("Restore waits only for hooks and claims; it leaves its place in this process to another restore")
		}
	}
}

// noteRestored makes every outcome durable, from when on the restore may become idle: a later holder
// creates nothing. Outcomes of which a later holder knows nothing keep their place.
func (a *restoreAttempt) noteRestored(ctx context.Context) error {
	a.planned, a.history = int64(a.prepared.Plan.Len()), nil
	a.prepared.closeTarball(a.session)
	a.prepared = nil // as large as the backup
	if a.inputs.records.readOnly {
		return nil
	}
	if err := a.inputs.recorder.Sync(ctx); err != nil {
		return err
	}
	now := a.cfg.Clock.Now()
	a.restored.Store(&now)
	return nil
}

// leavePlace gives the place of an idle restore to others; false while too many names are in memory.
func (a *restoreAttempt) leavePlace() bool {
	if a.kind.idle.Add(a.planned) > maxIdleObjects {
		a.kind.idle.Add(-a.planned)
		return false
	}
	a.idle = a.planned
	a.inputs.lowerMemoryLimit()
	a.inputs.lowerMemoryLimit = service.RaiseMemoryLimit(a.idle * idleBytes)
	a.held.LeavePlace()
	return true
}

// reportWait reports a wait that was not reported before.
func (t *waitReporter) reportWait(w *outcome.Wait) {
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
	// Events that differ in their text alone are counted as one; the object that is waited for makes them differ.
	waited := &corev1.ObjectReference{Namespace: t.restore.Namespace, Name: w.Name()}
	t.cfg.Events.Eventf(t.restore, waited, corev1.EventTypeNormal, "Waiting", "Restore", "%.250s", text)
}

// isWritten reports that the object has this mark.
func (t *waitReporter) isWritten(m mark.Waits) bool {
	m.UID = t.written.UID
	return reflect.DeepEqual(m, t.written)
}
