package monitor

import (
	"context"
	"errors"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/services/async-operation-monitor/internal/poll"
)

// endFollowing stops following the job of that name, which does not wait any more by the cache. The
// operations of one that was deleted, or failed over them, are cancelled by each process that follows
// it. The cache may be behind what this process has read: the API server decides.
func endFollowing[T client.Object](ctx context.Context, m *Monitor, k *jobKind[T], name string) error {
	key := k.name + "/" + name
	e := m.jobs.followedJob(key)
	if e == nil {
		return nil
	}
	obj := k.new()
	err := m.Reader.Get(ctx, client.ObjectKey{Namespace: m.Namespace, Name: name}, obj)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read %s %q: %w", k.name, name, err)
	}
	reason := k.deleted
	switch same := err == nil && obj.GetUID() == e.uid; {
	case same && k.isWaiting(obj):
		return nil
	case same && !k.hasFailed(obj):
		m.jobs.forgetJob(key, e)
		return nil
	case same:
		reason = k.ended
	}
	m.jobs.forgetJob(key, e)
	if e.job == nil || e.object == nil {
		return nil
	}
	if err := readRecords(ctx, m, e.job, e.object); err != nil {
		m.Log.WarnContext(ctx, "Failed to read which operations of a job have ended; cancelling those that had not when they were last polled",
			"kind", k.name, "name", name, "error", err)
	}
	return e.job.CancelOpen(ctx, e.object, reason)
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
