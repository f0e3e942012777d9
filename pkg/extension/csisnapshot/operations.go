package csisnapshot

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"strings"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
)

// Operations answers about the operations of the actions, from the API server alone, and hands on
// what others ask.
type Operations struct {
	API
	// Others are asked about operations of other actions.
	Others action.Operations
}

var _ action.Operations = (*Operations)(nil)

// snapshotOf reads the identifier of an operation.
func snapshotOf(op action.Operation) (namespace, name string, made time.Time, err error) {
	parts := strings.Split(op.ID, "/")
	if len(parts) == 3 && parts[0] != "" && parts[1] != "" { //nolint:mnd // namespace, name, time
		if made, err = time.Parse(time.RFC3339, parts[2]); err == nil {
			return parts[0], parts[1], made, nil
		}
	}
	return "", "", made, fmt.Errorf("%w: operation %q is not namespace/name/time", action.ErrUnknownOperation, op.ID)
}

// Progress reports whether volumes can be made of the snapshot. An error of the driver counts once
// the snapshot is as old as csiSnapshotTimeout: until then it may recover.
func (o *Operations) Progress(ctx context.Context, op action.Operation, job []byte) (p action.Progress, err error) {
	if op.Action != NameSnapshot {
		return o.Others.Progress(ctx, op, job)
	}
	namespace, name, made, err := snapshotOf(op)
	if err != nil {
		return p, err
	}
	pair, err := o.readPair(ctx, namespace, name)
	if err != nil {
		return p, err
	}
	p.Started = made
	failure := pair.failureMessage()
	switch {
	case pair.snapshot == nil:
		p.Done, p.Err = true, fmt.Sprintf("VolumeSnapshot %s/%s was removed before it was ready", namespace, name)
	case pair.snapshot.Status == nil || pair.snapshot.Status.BoundVolumeSnapshotContentName == nil:
		p.Description = "the snapshot is not bound"
	case pair.content == nil:
		p.Done, p.Err = true, fmt.Sprintf("VolumeSnapshotContent %s was removed before it was ready", *pair.snapshot.Status.BoundVolumeSnapshotContentName)
	case pair.isReady():
		p.Done = true
	case failure == "":
		p.Description = "the driver makes the snapshot ready"
	default:
		p.Description = failure
		if o.Clock.Now().After(made.Add(timeoutOf(job))) {
			p.Done, p.Err = true, failure
		}
	}
	if p.Done {
		p.Updated = o.Clock.Now()
	}
	return p, nil
}

// timeoutOf is csiSnapshotTimeout of the Backup in JSON.
func timeoutOf(job []byte) time.Duration {
	b := &velerov1.Backup{}
	if err := json.Unmarshal(job, b); err != nil {
		return DefaultTimeout
	}
	return snapshotTimeout(b)
}

// Cancel removes the snapshot: one that is not ready is of no use. The identifier of an operation
// comes from a bucket: a VolumeSnapshot that is not labelled as one of the job is left alone, which is
// an error.
func (o *Operations) Cancel(ctx context.Context, op action.Operation, job []byte, grace time.Duration) (accepted bool, err error) {
	if op.Action != NameSnapshot {
		return o.Others.Cancel(ctx, op, job, grace)
	}
	namespace, name, _, err := snapshotOf(op)
	if err != nil {
		return false, err
	}
	b := &velerov1.Backup{}
	if err := json.Unmarshal(job, b); err != nil {
		return false, fmt.Errorf("decode the backup: %w", err)
	}
	p, err := o.readPair(ctx, namespace, name)
	if err != nil {
		return false, err
	}
	if of := (Owner{Name: b.Name, UID: b.UID}); p.snapshot != nil && !of.hasBackupLabels(p.snapshot) {
		return false, fmt.Errorf("VolumeSnapshot %s/%s is not labelled as one of backup %q, it is not removed", namespace, name, b.Name)
	}
	err = o.deletePair(ctx, p, snapshotv1.VolumeSnapshotContentDelete)
	return err == nil, err
}

// Logs returns nothing: a snapshot has no log.
func (o *Operations) Logs(ctx context.Context, op action.Operation, job []byte, since time.Time, follow bool) iter.Seq2[action.LogLine, error] {
	if op.Action != NameSnapshot {
		return o.Others.Logs(ctx, op, job, since, follow)
	}
	return func(func(action.LogLine, error) bool) {}
}
