package monitor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/services/async-operation-monitor/internal/poll"
)

// endFollowing stops following the job of that name, which does not wait any more by the cache. The
// operations of one that was deleted, or failed over them, are cancelled by each process that follows
// it. The cache may be behind what this process has read: the API server decides. It returns after how long
// that has to be done again, as a poll of the job is under way; 0 otherwise.
func endFollowing[T client.Object](ctx context.Context, m *Monitor, k *jobKind[T], name string) (again time.Duration, err error) {
	key := k.name + "/" + name
	e := m.jobs.followedJob(key)
	if e == nil {
		return 0, nil
	}
	obj := k.new()
	err = m.Reader.Get(ctx, client.ObjectKey{Namespace: m.Namespace, Name: name}, obj)
	if client.IgnoreNotFound(err) != nil {
		return 0, fmt.Errorf("read %s %q: %w", k.name, name, err)
	}
	same := err == nil && obj.GetUID() == e.uid
	if same && k.isWaiting(obj) {
		return 0, nil
	}
	job, object, idle := m.jobs.forgetIdle(key, e)
	if !idle {
		return busyPause, nil
	}
	reason := k.deleted
	if same {
		reason = k.ended
	}
	if same && !k.hasFailed(obj) || job == nil || object == nil {
		return 0, nil
	}
	if err := readRecords(ctx, m, job, object); err != nil {
		m.Log.WarnContext(ctx, "Failed to read which operations of a job have ended; cancelling those that ran at the last poll",
			"kind", k.name, "name", name, "error", err)
	}
	return 0, job.CancelOpen(ctx, object, reason)
}

// readRecords reads the ends that other replicas recorded since the last poll: an operation that has
// completed must not be cancelled.
func readRecords(ctx context.Context, m *Monitor, job *poll.Job, object client.Object) (err error) {
	store, err := m.Files.Store(ctx, object)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	return job.ReadRecords(ctx, store)
}
