package job

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/pkg/claim"
	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/journal"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
)

// recordPrefix begins the name of each record, beside the owner file.
const recordPrefix = "record-"

// records are where this holder writes its outcomes, and those of the holders before.
type records struct {
	outcome.Store
	bucket   objectstore.Reader
	readOnly bool // nobody can write the bucket: outcomes stay in the work directory
	earlier  []string
	head     outcome.Head
}

// openRecords makes the records of this restore this holder's: it says whose they are, closes the epochs of earlier holders
// and finds out how far they came.
func (j *job) openRecords(ctx context.Context, store objectstore.Store, dir string) (*records, error) {
	out := &records{bucket: store}
	if err := j.own(ctx, store); errors.Is(err, objectstore.ErrReadOnly) || errors.Is(err, objectstore.ErrAccess) {
		j.log.Warn("the location cannot be written: a takeover of this restore would start from its plan", "error", err)
		out.readOnly, out.Store = true, &outcome.Dir{Path: dir}
		return out, nil
	} else if err != nil {
		return nil, err
	}
	failpoint.Hit("restore-runner/owner-file-written")
	prefix := layout.RestoreRecords(j.restore.Name, string(j.restore.UID)) + recordPrefix
	opened, err := again(ctx, j, "open the records of the restore", func() (*journal.Journal, error) {
		opened, err := journal.Open(ctx, store, prefix, j.mine.Epoch)
		return opened, fenced(err)
	})
	if err != nil {
		return nil, err
	}
	failpoint.Hit("restore-runner/records-opened")
	out.Store, out.earlier = outcome.Journal{Journal: opened}, opened.Earlier()
	return out, j.look(ctx, out)
}

// own creates the owner file unless it is there; its name says whose it is.
func (j *job) own(ctx context.Context, store objectstore.Store) error {
	ns := &corev1.Namespace{}
	err := j.retry(ctx, "read namespace kube-system", func() error {
		return j.cfg.Reader.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, ns)
	})
	if err != nil {
		return fmt.Errorf("identify the cluster: %w", err)
	}
	data, err := layout.RestoreOwner{RestoreUID: string(j.restore.UID), ClusterUID: string(ns.UID)}.Encode()
	if err != nil {
		return fatal("encode the owner file: %w", err)
	}
	_, err = again(ctx, j, "store the owner file", func() (struct{}, error) {
		err := objectstore.CreateBytes(ctx, store, layout.RestoreOwnerFile(j.restore.Name, string(j.restore.UID)), data)
		if errors.Is(err, objectstore.ErrExists) {
			err = nil
		}
		return struct{}{}, err
	})
	return err
}

// fenced tells a journal closed by a later holder as what it is: the loss of the claim.
func fenced(err error) error {
	if errors.Is(err, journal.ErrFenced) {
		return fmt.Errorf("%w: %w", claim.ErrLost, err)
	}
	return err
}

// look reads what has to be known first: it is in the first and the last record.
func (j *job) look(ctx context.Context, r *records) error {
	if len(r.earlier) == 0 {
		return nil
	}
	for _, key := range []string{r.earlier[0], r.earlier[len(r.earlier)-1]} {
		data, err := j.readRecord(ctx, r, key)
		if err != nil {
			return err
		}
		if err := r.head.Look(data); err != nil {
			return fatal("%s: %w", key, err)
		}
	}
	return nil
}

func (j *job) readRecord(ctx context.Context, r *records, key string) ([]byte, error) {
	return again(ctx, j, "read "+key, func() ([]byte, error) { return journal.Read(ctx, r.bucket, key) })
}

// replay brings the recorder to where the earlier holders came, and returns what they left to be done.
func (j *job) replay(ctx context.Context, r *records) (*outcome.History, error) {
	blind := r.readOnly && j.mine.Epoch > 1
	history := &outcome.History{Resumed: r.head.Planned != nil || blind, Blind: blind}
	for _, key := range r.earlier {
		data, err := j.readRecord(ctx, r, key)
		if err != nil {
			return nil, err
		}
		if err := j.recorder.Replay(data, history); err != nil {
			return nil, fatal("%s: %w", key, err)
		}
	}
	if history.Unknown > 0 {
		j.log.Warn("records of objects that are not in the plan were passed over", "records", history.Unknown)
	}
	if len(r.earlier) > 0 {
		j.recorder.Open()
	}
	return history, nil
}

// flush stores what was recorded.
func (j *job) flush(ctx context.Context) error { return fenced(j.recorder.Flush(ctx, j.records)) }

// record stores outcomes as they come, and the last ones when the work is done. It ends the job when another holder closed
// the records, or when they could not be stored for too long: a restore nobody could go on with must not run on for ever.
func (j *job) record(ctx context.Context, done <-chan struct{}, cancel context.CancelCauseFunc) {
	ticker := j.cfg.Clock.NewTicker(j.cfg.RecordEvery)
	defer ticker.Stop()
	failing := j.cfg.Clock.Now()
	for {
		select {
		case <-ctx.Done():
			j.lastFlush(ctx)
			return
		case <-done:
			j.lastFlush(ctx)
			return
		case <-ticker.C():
		case <-j.recorder.Wanted():
		}
		err := j.flush(ctx)
		switch {
		case err == nil:
			failing = j.cfg.Clock.Now()
		case errors.Is(err, claim.ErrLost):
			cancel(err)
			return
		case ctx.Err() != nil:
		case j.cfg.Clock.Since(failing) > j.cfg.StorePatience:
			cancel(fatal("record the outcomes: %w", err))
			return
		default:
			j.log.Warn("outcomes not recorded", "error", err)
			j.rest(ctx, done)
		}
	}
}

// rest waits for the next tick after a failure, however many ask for a flush.
func (j *job) rest(ctx context.Context, done <-chan struct{}) {
	timer := j.cfg.Clock.NewTimer(j.cfg.RecordEvery)
	defer timer.Stop()
	select {
	case <-timer.C():
	case <-done:
	case <-ctx.Done():
	}
}

// lastFlush stores what is left when the job ends here, whatever the reason: all of it has happened.
func (j *job) lastFlush(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastRecords)
	defer cancel()
	if err := j.flush(ctx); err != nil {
		j.log.Warn("last outcomes not recorded", "error", err)
	}
}
