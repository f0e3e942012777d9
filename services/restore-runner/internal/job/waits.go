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
	// tellAfter is after how long a wait is told.
	tellAfter = 5 * time.Second
	// idleAfter is for how long hooks and claims alone are waited for until the restore is idle.
	idleAfter = 10 * time.Second
	// maxIdleObjects bounds the objects whose names a process holds for the restores without a place, of about
	// idleBytes each.
	maxIdleObjects = 800_000
	idleBytes      = 64
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
	// restored is when every object had a durable outcome; nil before.
	restored  *atomic.Pointer[time.Time]
	placeless bool
	// leavePlace is called once the object has the mark that the restore is idle, until it reports true.
	leavePlace func() bool
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
	m.SharedDone = t.written.SharedDone || t.recorder.SharedLeft() == 0
	m.Idle = t.written.Idle || t.isIdle()
	return m
}

// isIdle reports that hooks and claims alone have been waited for, by this holder or one before.
func (t *waitTeller) isIdle() bool {
	at := t.restored.Load()
	return at != nil && (t.written.Idle || t.cfg.Clock.Since(*at) >= idleAfter)
}

// noteWritten notes that the object has a mark. With that of an idle restore the place goes to others.
func (t *waitTeller) noteWritten(m mark.Waits) {
	t.written = m
	if m.Idle && !t.placeless && t.isIdle() {
		if t.placeless = t.leavePlace(); t.placeless {
			t.log.Info("Restore waits for hooks and claims alone; gives up its place")
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
	// Events that differ in their text alone are counted as one; what is waited for tells them apart.
	waited := &corev1.ObjectReference{Namespace: t.restore.Namespace, Name: w.Name()}
	t.cfg.Events.Eventf(t.restore, waited, corev1.EventTypeNormal, "Waiting", "Restore", "%.250s", text)
}

// isWritten reports that the object has this mark.
func (t *waitTeller) isWritten(m mark.Waits) bool {
	m.UID = t.written.UID
	return reflect.DeepEqual(m, t.written)
}
