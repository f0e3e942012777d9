package podvolume

import (
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

type recentList struct {
	used time.Time // under the lock of recentLists

	mu       sync.Mutex
	at       time.Time            // when the list was begun
	requests map[string][]Request // by the hash of the operation
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
	all, err := o.recent.ofJob(op.Action+"/"+owner.Metadata.UID, o.Clock.Now()).find(ctx, o.API, op.Action, owner.Metadata.UID, hash)
	if err == nil && len(all) < begun {
		return o.OperationRequests(ctx, op)
	}
	return all, begun, err
}

// ofJob returns the list of a job. Those that nobody asked for lately are dropped.
func (l *recentLists) ofJob(key string, now time.Time) *recentList {
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

// find returns the requests of an operation of the job. They are shared: callers change none.
func (r *recentList) find(ctx context.Context, api API, name, uid, hash string) ([]Request, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := api.Clock.Now()
	if r.requests != nil && now.Sub(r.at) < recentUse {
		return r.requests[hash], nil
	}
	label := velerov1.LabelBackupUID
	if name == NameRestore {
		label = velerov1.LabelRestoreUID
	}
	all, err := api.listRequests(ctx, name, map[string]string{label: uid})
	if err != nil {
		return nil, err
	}
	r.at, r.requests = now, map[string][]Request{}
	for i := range all {
		of := all[i].Object.GetLabels()[LabelOperation]
		r.requests[of] = append(r.requests[of], all[i])
	}
	return r.requests[hash], nil
}
