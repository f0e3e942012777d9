package monitor

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// endFollowing stops following the job of that name, which does not wait any more by the cache. The
// operations of one that was deleted, or ended over them, are cancelled by each process that follows
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
	case same && k.isFinalizing(obj):
		m.jobs.forgetJob(key, e)
		return nil
	case same:
		reason = k.ended
	}
	m.jobs.forgetJob(key, e)
	if e.job == nil || e.object == nil {
		return nil
	}
	return e.job.CancelOpen(ctx, e.object, reason)
}
