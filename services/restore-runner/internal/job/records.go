package job

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/job/journal"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/retrystore"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
)

// outcomeRecords are where this holder writes its outcomes, and those of the holders before.
type outcomeRecords struct {
	*session
	outcome.Store
	bucket   objectstore.Reader
	readOnly bool // no process can write the bucket: outcomes stay in the work directory
	earlier  []string
	head     outcome.Head
	replayed atomic.Bool  // the recorder is where the earlier holders came
	before   atomic.Int64 // how many outcomes earlier holders recorded, once replayed
}

// newRecords makes the records of this restore this holder's: it creates the owner file, closes
// the epochs of earlier holders and reads their first and last records.
func newRecords(ctx context.Context, in *restoreInputs) (*outcomeRecords, error) {
	s, out := in.session, &outcomeRecords{session: in.session}
	if err := in.openRecordStore(ctx); isRefusal(err) {
		s.log.WarnContext(ctx, "Failed to store the records and files of the restore; its log and results will be lost, and a takeover starts from its plan", "error", err)
		out.readOnly, out.Store = true, &outcome.Dir{Path: in.dir}
		return out, nil
	} else if err != nil {
		return nil, err
	}
	store := in.recordStore
	out.bucket = store
	failpoint.Hit("restore-runner/owner-file-written")
	prefix := layout.RestoreRecords(s.restore.Name, string(s.restore.UID)) + outcome.FilePrefix
	opened, err := journal.Open(ctx, store, prefix, s.held.Claim.Epoch)
	if err != nil {
		return nil, fmt.Errorf("open the records of the restore: %w", claimLostError(err))
	}
	out.Store, out.earlier = outcome.Journal{Journal: opened}, opened.Earlier()
	return out, out.readEnds(ctx)
}

// createOwnerFile creates the owner file in a store unless it exists; its name has the UID of the restore.
func (in *restoreInputs) createOwnerFile(ctx context.Context, store objectstore.Store) error {
	ns := &corev1.Namespace{}
	err := in.retryCall(ctx, "read namespace kube-system", func() error {
		return in.cfg.Reader.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, ns)
	})
	if err != nil {
		return fmt.Errorf("identify the cluster: %w", err)
	}
	data, err := layout.RestoreOwner{RestoreUID: string(in.restore.UID), ClusterUID: string(ns.UID)}.Encode()
	if err != nil {
		return fatalErrorf("encode the owner file: %w", err)
	}
	err = in.tryWriting(ctx, store, layout.RestoreOwnerFile(in.restore.Name, string(in.restore.UID)), data)
	if err == nil || errors.Is(err, objectstore.ErrExists) {
		return nil
	}
	return fmt.Errorf("store the owner file: %w", err)
}

// tryWriting creates the first file of the restore. A plugin refuses in words of its own, which are repeated like
// those of a bucket that is away: a ReadOnly location that can be read, and refuses the file twice, is ErrReadOnly.
func (in *restoreInputs) tryWriting(ctx context.Context, store objectstore.Store, key string, data []byte) (err error) {
	if !in.readOnly || store != in.store {
		return objectstore.CreateBytes(ctx, store, key, data)
	}
	for range 2 {
		err = objectstore.CreateBytes(retrystore.Once(ctx), store, key, data)
		if err == nil || errors.Is(err, objectstore.ErrExists) || retrystore.Refused(err) || ctx.Err() != nil {
			return err
		}
		if _, away := objectstore.Exists(ctx, store, key); away != nil {
			return away
		}
	}
	return fmt.Errorf("%w: %w", objectstore.ErrReadOnly, err)
}

// claimLostError turns the error of a journal that a later holder closed into the loss of the claim.
func claimLostError(err error) error {
	if errors.Is(err, journal.ErrFenced) {
		return fmt.Errorf("%w: %w", claim.ErrLost, err)
	}
	return err
}

// readEnds reads the first and the last record.
func (r *outcomeRecords) readEnds(ctx context.Context) error {
	if len(r.earlier) == 0 {
		return nil
	}
	for _, key := range []string{r.earlier[0], r.earlier[len(r.earlier)-1]} {
		data, err := journal.Read(ctx, r.bucket, key)
		if err != nil {
			return fmt.Errorf("read the records of the restore: %w", err)
		}
		if err := r.head.ReadHead(data); err != nil {
			return fatalErrorf("%s: %w", key, err)
		}
	}
	return nil
}

// replayRecords brings a recorder to where the earlier holders came, and returns what they left to be
// done.
func (r *outcomeRecords) replayRecords(ctx context.Context, recorder *outcome.Recorder) (*outcome.History, error) {
	blind := r.readOnly && !r.isFresh()
	history := &outcome.History{Resumed: r.head.Planned != nil || blind, NoHistory: blind}
	for _, key := range r.earlier {
		data, err := journal.Read(ctx, r.bucket, key)
		if err != nil {
			return nil, fmt.Errorf("read the records of the restore: %w", err)
		}
		if err := recorder.Replay(data, history); err != nil {
			return nil, fatalErrorf("%s: %w", key, err)
		}
	}
	if len(r.earlier) > 0 {
		recorder.Open()
	}
	if history.Unknown > 0 && r.head.Finished == nil {
		recorder.Warn(outcome.General, fmt.Sprintf("%d records of the earlier runner are about objects that are not in the backup any more: what became of these is not listed", history.Unknown))
	}
	r.before.Store(int64(recorder.Counts().Done))
	r.replayed.Store(true)
	return history, nil
}

// flushRecorder stores what was recorded.
func (r *outcomeRecords) flushRecorder(ctx context.Context, recorder *outcome.Recorder) error {
	done := int64(recorder.Counts().Done)
	err := claimLostError(recorder.Flush(ctx, r))
	if err == nil && !r.readOnly && r.replayed.Load() && done > r.before.Load() { // records of a work directory are lost with the attempt
		r.held.NoteProgress()
	}
	return err
}
