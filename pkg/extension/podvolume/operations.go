package podvolume

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
)

// Operations answers about the operations of the actions, from the API server alone, and hands on
// what others ask. One operation has the requests of one Pod, or the one of a claim.
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

	prefixUpload   = "du-"
	prefixDownload = "dd-"
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

// UploadOperationID is the identifier of the operation that moves the snapshot of a claim (Velero 1.18).
func UploadOperationID(backup, claim types.UID) string {
	return moveOperationID(prefixUpload, backup, claim)
}

// moveOperationID is also the value of a label.
func moveOperationID(prefix string, job, claim types.UID) string {
	return velerov1.LabelValue(prefix + string(job) + "." + string(claim))
}

// movePrefix begins the identifiers of operations with one DataUpload or DataDownload; empty for other actions.
func movePrefix(action string) string {
	return map[string]string{NameUpload: prefixUpload, NameDownload: prefixDownload}[action]
}

// isOfRestore reports whether an action is one of restores.
func isOfRestore(action string) bool { return action == NameRestore || action == NameDownload }

// isPodVolumeOperation reports whether an operation is of an action of this package.
func isPodVolumeOperation(op action.Operation) bool {
	return op.Action == NameBackup || op.Action == NameRestore || movePrefix(op.Action) != ""
}

// OperationRequests returns the requests of an operation, sorted by their names, and how many there
// were when it began.
func (a API) OperationRequests(ctx context.Context, op action.Operation) (all []Request, begun int, err error) {
	value, begun, err := decodeOperation(op)
	if err != nil {
		return nil, 0, err
	}
	label := LabelOperation
	if movePrefix(op.Action) != "" {
		label = velerov1.LabelAsyncOperation
	}
	all, err = a.listRequests(ctx, op.Action, map[string]string{label: value})
	return all, begun, err
}

// decodeOperation reads the identifier of an operation: the value of the label of its requests, and their
// number.
func decodeOperation(op action.Operation) (value string, begun int, err error) {
	if prefix := movePrefix(op.Action); prefix != "" {
		if !strings.HasPrefix(op.ID, prefix) || len(validation.IsValidLabelValue(op.ID)) > 0 {
			return "", 0, fmt.Errorf("%w: operation %q is not of action %s", action.ErrUnknownOperation, op.ID, op.Action)
		}
		return op.ID, 1, nil
	}
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
func (a API) listRequests(ctx context.Context, name string, labels map[string]string) ([]Request, error) {
	switch name {
	case NameBackup:
		list, err := a.ListBackups(ctx, labels)
		return describeRequests(list, BackupRequest), err
	case NameUpload:
		list, err := a.ListUploads(ctx, labels)
		return describeRequests(list, UploadRequest), err
	case NameDownload:
		list, err := a.listDownloads(ctx, labels)
		return describeRequests(list, DownloadRequest), err
	}
	list, err := a.ListRestores(ctx, labels)
	return describeRequests(list, RestoreRequest), err
}

// describeRequests describes requests of one kind, sorted by their names.
func describeRequests[T any](list []T, describe func(*T) Request) (all []Request) {
	for i := range list {
		all = append(all, describe(&list[i]))
	}
	slices.SortFunc(all, func(a, b Request) int { return strings.Compare(a.Object.GetName(), b.Object.GetName()) })
	return all
}

// Progress sums up the requests of the operation, which ends when all of them have. A request that
// no controller accepts in time is cancelled, so that none accepts it later.
func (o *Operations) Progress(ctx context.Context, op action.Operation, job []byte) (p action.Progress, err error) {
	if !isPodVolumeOperation(op) {
		return o.Others.Progress(ctx, op, job)
	}
	all, begun, err := o.recentRequests(ctx, op, job)
	if err != nil {
		return p, err
	}
	now, ended := o.Clock.Now(), 0
	var failures []string
	remark := ""
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
			failures = append(failures, r.describeSubject()+": "+failure)
		}
		switch {
		case failure != "":
			ended++
		case r.isWaiting() && r.Message != "":
			remark = "; " + r.Message
		case r.Ended():
			ended++
			if r.Message != "" {
				remark = cmp.Or(remark, "; "+r.Message)
			}
		}
	}
	p.Units, p.Description = "bytes", fmt.Sprintf("%d of %d volumes are done", ended, begun)+remark
	if movePrefix(op.Action) != "" && len(all) > 0 {
		p.Units, p.Description = "Bytes", string(all[0].Phase)+remark // Velero 1.18
	}
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
	if !isPodVolumeOperation(op) {
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
	if !isPodVolumeOperation(op) {
		return o.Others.Logs(ctx, op, job, since, follow)
	}
	return func(func(action.LogLine, error) bool) {}
}
