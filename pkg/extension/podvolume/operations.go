package podvolume

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
)

// Operations answers about the operations of the actions, from the API server alone, and hands on
// what others ask. One operation has the requests of one Pod.
type Operations struct {
	API
	// Others are asked about operations of other actions.
	Others action.Operations

	recent recentLists
}

var _ action.Operations = (*Operations)(nil)

// Prefixes of operation identifiers.
const (
	prefixBackup  = "pvb"
	prefixRestore = "pvr"
)

// BackupOperationID is the identifier of an operation with so many PodVolumeBackups. The number
// tells an operation without requests from one whose requests were removed.
func BackupOperationID(hash string, requests int) string {
	return fmt.Sprintf("%s.%s.%d", prefixBackup, hash, requests)
}

// RestoreOperationID is the identifier of an operation with so many PodVolumeRestores.
func RestoreOperationID(hash string, requests int) string {
	return fmt.Sprintf("%s.%s.%d", prefixRestore, hash, requests)
}

// isOwn reports whether an operation is of an action of this package.
func isOwn(op action.Operation) bool { return op.Action == NameBackup || op.Action == NameRestore }

// OperationRequests returns the requests of an operation, sorted by their names, and how many there
// were when it began.
func (a API) OperationRequests(ctx context.Context, op action.Operation) (all []Request, begun int, err error) {
	hash, begun, err := decodeOperation(op)
	if err != nil {
		return nil, 0, err
	}
	all, err = a.listRequests(ctx, op.Action, map[string]string{LabelOperation: hash})
	return all, begun, err
}

// decodeOperation reads the identifier of an operation.
func decodeOperation(op action.Operation) (hash string, begun int, err error) {
	parts := strings.Split(op.ID, ".")
	prefix := map[string]string{NameBackup: prefixBackup, NameRestore: prefixRestore}[op.Action]
	if len(parts) == 3 && parts[0] == prefix && len(parts[1]) == hashLength { //nolint:mnd // prefix, hash, number
		begun, err = strconv.Atoi(parts[2])
	}
	if begun < 1 || err != nil {
		return "", 0, fmt.Errorf("%w: operation %q is not of action %s", action.ErrUnknownOperation, op.ID, op.Action)
	}
	return parts[1], begun, nil
}

// listRequests returns the requests of an action with these labels, sorted by their names.
func (a API) listRequests(ctx context.Context, name string, labels map[string]string) (all []Request, err error) {
	if name == NameBackup {
		list, err := a.ListBackups(ctx, labels)
		for i := range list {
			all = append(all, BackupRequest(&list[i]))
		}
		return sortRequests(all), err
	}
	list, err := a.ListRestores(ctx, labels)
	for i := range list {
		all = append(all, RestoreRequest(&list[i]))
	}
	return sortRequests(all), err
}

func sortRequests(all []Request) []Request {
	slices.SortFunc(all, func(a, b Request) int { return strings.Compare(a.Object.GetName(), b.Object.GetName()) })
	return all
}

// Progress sums up the requests of the operation, which ends when all of them have. A request that
// no controller accepts in time is cancelled, so that none accepts it later.
func (o *Operations) Progress(ctx context.Context, op action.Operation, job []byte) (p action.Progress, err error) {
	if !isOwn(op) {
		return o.Others.Progress(ctx, op, job)
	}
	all, begun, err := o.recentRequests(ctx, op, job)
	if err != nil {
		return p, err
	}
	now, ended := o.Clock.Now(), 0
	var failures []string
	waits := ""
	for i := range all {
		r := &all[i]
		addProgress(&p, r)
		if r.isUnaccepted(now) {
			if err := o.CancelRequest(ctx, r, unacceptedReason); err != nil {
				return p, err
			}
		}
		failure := r.Failure(now)
		if failure != "" {
			failures = append(failures, fmt.Sprintf("volume %s of pod %s: %s", r.Volume, r.Pod, failure))
		}
		switch {
		case failure != "" || r.Ended():
			ended++
		case r.isWaiting() && r.Message != "":
			waits = "; " + r.Message
		}
	}
	p.Units, p.Description = "bytes", fmt.Sprintf("%d of %d volumes are done", ended, begun)+waits
	if ended < len(all) {
		return p, nil
	}
	if missing := begun - len(all); missing > 0 {
		failures = append(failures, fmt.Sprintf("%d of %d requests were removed before they ended", missing, begun))
	}
	p.Done, p.Updated, p.Err = true, now, strings.Join(failures, "; ")
	return p, nil
}

// addProgress adds how far a request is.
func addProgress(p *action.Progress, r *Request) {
	p.Completed += max(0, r.Progress.BytesDone)
	p.Total += max(0, r.Progress.TotalBytes)
	if t := r.Started; t != nil && (p.Started.IsZero() || t.Time.Before(p.Started)) {
		p.Started = t.Time
	}
}

// Cancel asks for the end of the requests of the operation. The identifier of an operation comes
// from a bucket: a request that is not labelled as one of the job is left alone, which is an error.
func (o *Operations) Cancel(ctx context.Context, op action.Operation, job []byte, grace time.Duration) (accepted bool, err error) {
	if !isOwn(op) {
		return o.Others.Cancel(ctx, op, job, grace)
	}
	owner, err := decodeOwner(job)
	if err != nil {
		return false, err
	}
	all, _, err := o.OperationRequests(ctx, op)
	if err != nil {
		return false, err
	}
	for i := range all {
		if !owner.ownsRequest(op.Action, all[i].Object) {
			return false, fmt.Errorf("request %s is not labelled as one of %q, it is not cancelled", all[i].Object.GetName(), owner.Metadata.Name)
		}
	}
	for i := range all {
		if err := o.CancelRequest(ctx, &all[i], "the operation was cancelled"); err != nil {
			return false, err
		}
	}
	return true, nil
}

// Logs returns nothing: what a mover logs is in its Pod.
func (o *Operations) Logs(ctx context.Context, op action.Operation, job []byte, since time.Time, follow bool) iter.Seq2[action.LogLine, error] {
	if !isOwn(op) {
		return o.Others.Logs(ctx, op, job, since, follow)
	}
	return func(func(action.LogLine, error) bool) {}
}
