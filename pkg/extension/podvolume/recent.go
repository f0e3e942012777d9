package podvolume

import (
	"cmp"
	"context"
	"sync"
	"time"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
)

// How long a list of the requests of a job is used, and kept.
const (
	recentUse  = time.Second
	recentKept = time.Minute
)

// recentLists are the requests of jobs as they were a moment ago: all operations of a job are asked
// about together, and one list answers them. Safe for concurrent use.
type recentLists struct {
	mu   sync.Mutex
	jobs map[string]*recentList // by action and UID of the job
}

// recentList are the requests of one job. Safe for concurrent use.
type recentList struct {
	used time.Time // under the lock of recentLists

	mu       sync.Mutex
	at       time.Time // when the list was begun
	all      []Request
	requests map[string][]Request // by the operation
}

// recentRequests is OperationRequests, from a list that may be recentUse old. It lists again where the
// list lacks a request, which may have been made since.
func (o *Operations) recentRequests(ctx context.Context, op action.Operation, job []byte) ([]Request, int, error) {
	hash, begun, err := decodeOperation(op)
	if err != nil {
		return nil, 0, err
	}
	owner, err := decodeOwner(job)
	if err != nil || owner.Metadata.UID == "" {
		return o.OperationRequests(ctx, op)
	}
	label := velerov1.LabelBackupUID
	if isOfRestore(op.Action) {
		label = velerov1.LabelRestoreUID
	}
	list := o.recent.getJobList(op.Action+"/"+owner.Metadata.UID, o.Clock.Now())
	_, requests, err := list.readRequests(o.Clock.Now(), time.Time{}, func() ([]Request, error) {
		return o.listRequests(ctx, op.Action, map[string]string{label: owner.Metadata.UID})
	})
	all := requests[hash]
	if err == nil && len(all) < begun {
		return o.OperationRequests(ctx, op)
	}
	return all, begun, err
}

// getJobList returns the list of a job, which it creates if it is missing. Lists that were not read for recentKept are dropped.
func (l *recentLists) getJobList(key string, now time.Time) *recentList {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k, one := range l.jobs {
		if now.Sub(one.used) > recentKept {
			delete(l.jobs, k)
		}
	}
	if l.jobs == nil {
		l.jobs = map[string]*recentList{}
	}
	if l.jobs[key] == nil {
		l.jobs[key] = &recentList{}
	}
	l.jobs[key].used = now
	return l.jobs[key]
}

// readRequests returns the requests, also by the hash of their operations. It lists anew unless the list was
// begun after since, and lately. What is returned is shared: callers change nothing.
func (r *recentList) readRequests(now, since time.Time, list func() ([]Request, error)) ([]Request, map[string][]Request, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.at.After(since) && now.Sub(r.at) < recentUse {
		return r.all, r.requests, nil
	}
	all, err := list()
	if err != nil {
		return nil, nil, err
	}
	r.at, r.all, r.requests = now, all, map[string][]Request{}
	for i := range all {
		labels := all[i].Object.GetLabels()
		of := cmp.Or(labels[LabelOperation], labels[velerov1.LabelAsyncOperation])
		r.requests[of] = append(r.requests[of], all[i])
	}
	return all, r.requests, nil
}
