package monitor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/services/async-operation-monitor/internal/operations"
	"github.com/holdfast-io/holdfast/services/async-operation-monitor/internal/poll"
)

// deletedLimit is how long the operations of a job that is gone are tried to be cancelled, where
// its bucket does not answer.
const deletedLimit = time.Hour

// noteGone finds out whether the job of that name that this process follows is no more: uid is that of
// the one there is now, empty for none. Its operations, if any are open, are to be cancelled.
func (j *jobTable) noteGone(key string, uid types.UID) {
	j.mu.Lock()
	defer j.mu.Unlock()
	e := j.by[key]
	if e == nil || e.uid == uid {
		return
	}
	j.untrackJob(key, e)
}

// untrackFinished drops a job that waits no more. Where it does not finalize, it was ended over
// operations that are open, which are to be cancelled.
func (j *jobTable) untrackFinished(key string, finalizes bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch e := j.by[key]; {
	case e == nil:
	case finalizes:
		delete(j.by, key)
	default:
		j.untrackJob(key, e)
	}
}

// untrackJob moves a job to those whose operations are to be cancelled, if any are open. The lock is held.
func (j *jobTable) untrackJob(key string, e *jobEntry) {
	delete(j.by, key)
	if e.job != nil && e.object != nil && e.job.Open() > 0 {
		e.gone = j.clock.Now()
		j.deleted[key] = append(j.deleted[key], e)
	}
}

// enterDeleted begins polls of the jobs of that name that are gone, but for those under way. leave
// ends each.
func (j *jobTable) enterDeleted(key string) (list []*jobEntry, more bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, e := range j.deleted[key] {
		if e.busy {
			more = true
			continue
		}
		e.busy = true
		list = append(list, e)
	}
	return list, more
}

func (j *jobTable) forgetDeleted(key string, e *jobEntry) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.deleted[key] = slices.DeleteFunc(j.deleted[key], func(other *jobEntry) bool { return other == e })
	if len(j.deleted[key]) == 0 {
		delete(j.deleted, key)
	}
}

// endDeleted polls the jobs of that name that are gone, whose operations are cancelled. It returns
// after how long that has to be done again, 0 for never.
func endDeleted[T client.Object](ctx context.Context, m *Monitor, k *jobKind[T], key string) (again time.Duration) {
	list, more := m.jobs.enterDeleted(key)
	if more {
		again = busy
	}
	for _, e := range list {
		next, err := m.runGuarded(ctx, func() (time.Duration, error) { return cancelDeleted(ctx, m, k, e) })
		switch {
		case err != nil && m.Clock.Since(e.gone) < deletedLimit:
			m.Log.WarnContext(ctx, "operations of a job that is gone or was ended not polled, it is tried again", "kind", k.name, "name", e.object.GetName(), "error", err)
			next = m.Frequency
		case err != nil:
			m.Log.ErrorContext(ctx, "operations of a job that is gone or was ended not cancelled; they may continue", "kind", k.name, "name", e.object.GetName(), "error", err)
			next = 0
		}
		m.jobs.endPoll(e, next)
		if next == 0 {
			m.jobs.forgetDeleted(key, e)
		}
		again = shorterPause(again, next)
	}
	return again
}

// cancelDeleted polls the operations of a job that is gone or was ended, to cancel them: their records are still
// in the bucket, so that of several replicas one calls the actions. It returns after how long that
// has to be done again; 0 when all have ended, or the job is there after all.
func cancelDeleted[T client.Object](ctx context.Context, m *Monitor, k *jobKind[T], e *jobEntry) (again time.Duration, err error) {
	now := k.new()
	err = m.Reader.Get(ctx, client.ObjectKeyFromObject(e.object), now)
	switch {
	case client.IgnoreNotFound(err) != nil:
		return 0, fmt.Errorf("read %s %q: %w", k.name, e.object.GetName(), err)
	case now.GetUID() == e.uid && (k.isWaiting(now) || k.isFinalizing(now)):
		return 0, nil // it is found and followed anew, or moved on
	}
	reason := k.deleted
	if now.GetUID() == e.uid {
		reason = k.ended
	}
	store, err := m.Files.Store(ctx, e.object)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	raw, err := operations.JSON(e.object, k.name)
	if err != nil {
		return 0, err
	}
	report, err := e.job.Poll(ctx, store, poll.Input{JSON: raw, Timeout: defaultTimeout, Cancel: reason})
	if errors.Is(err, operation.ErrDamaged) {
		m.Log.WarnContext(ctx, "operations of a job that is gone or was ended are not known any more", "kind", k.name, "name", e.object.GetName(), "error", err)
		return 0, nil
	}
	if err != nil || !report.Ended {
		return report.Next, err
	}
	m.Log.InfoContext(ctx, "operations of a job that is gone or was ended have ended", "kind", k.name, "name", e.object.GetName())
	return 0, nil
}

// shorterPause is the shorter of two pauses, of which 0 is none.
func shorterPause(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}
