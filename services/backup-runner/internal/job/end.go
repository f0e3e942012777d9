package job

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/commit"
	"github.com/holdfast-io/holdfast/pkg/extension/csisnapshot"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/retrystore"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/finalize"
)

// withStore decides the end in the bucket, then copies it to the object.
func (a *attempt) withStore(ctx context.Context, store objectstore.Store, dir string) error {
	cluster, err := a.clusterUID(ctx)
	if err != nil {
		return err
	}
	s := finalize.New(a.finalizeJob(store, dir, cluster))
	defer s.Close()
	c := &backupCollection{attempt: a, namespaces: a.admitted.Namespaces, store: store, dir: dir}
	s.Again = c.storeItemsAgain
	s.Collect = func(ctx context.Context) (checkpoint.Composition, error) {
		a.collecting = true
		return c.collectBackup(ctx)
	}
	err = a.reachCommit(ctx, s)
	var bad *failedError
	if errors.As(err, &bad) {
		return a.endAsFailed(ctx, bad.reason)
	}
	var waiting *finalize.WaitingError
	if errors.As(err, &waiting) {
		return a.awaitOperations(ctx, waiting)
	}
	if err != nil {
		return err
	}
	return s.Run(ctx, finalize.End())
}

// clusterUID returns the UID of namespace kube-system, which identifies the cluster.
func (a *attempt) clusterUID(ctx context.Context) (string, error) {
	ns := &corev1.Namespace{}
	err := a.callLoop(a.held.Log).Do(ctx, "read namespace kube-system", func() error {
		return a.Reader.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, ns)
	})
	if err != nil {
		return "", fmt.Errorf("identify the cluster: %w", err)
	}
	return string(ns.UID), nil
}

func (a *attempt) finalizeJob(store objectstore.Store, dir, cluster string) finalize.Job {
	return finalize.Job{
		Backup: a.held.Object.DeepCopy(), Claimed: a.held.Object.Status.Phase, Epoch: a.held.Claim.Epoch, Cluster: cluster, Holder: attemptClaim{a},
		Store: store, Dir: dir, Clock: a.Clock, Log: a.held.Log, Exec: a.Exec, Opened: &a.opened,
		Snapshots: a.CSI, PodVolumes: a.PodVolumes, Canceller: a.Operations, GivenUp: a.givenUp,
	}
}

// endAsFailed writes the end of a backup as Failed on the object alone, for the request to cancel it if there
// is one. What pre hooks of this process changed
// is undone before; what an earlier holder left, once the records can be read.
func (a *attempt) endAsFailed(ctx context.Context, reason string) error {
	if err := a.runOpened(ctx, a.held.Confirm); err != nil {
		return err
	}
	if asked := a.held.Cancelled(); asked != nil && !a.committing && !mark.IsCancelReason(reason) {
		reason = asked.Request.ReasonBut("the bucket could not be written: " + reason)
	}
	b := a.held.Object.DeepCopy()
	a.endSnapshots(ctx, b)
	a.owes = !a.first && b.Status.Phase == velerov1.BackupPhaseInProgress
	failBackup(b, reason, a.currentTime())
	return attemptClaim{a}.Finish(ctx, b, finalize.Contents{})
}

// errCommitting means that the bucket may hold the backup as committed, which cannot be read.
var errCommitting = errors.New("the backup may be committed")

// endSnapshots cancels the file-system backups, and removes the CSI snapshots that the backup's own actions made, with what the drivers
// stored. They stay once the backup may have been committed: then the bucket may name them.
func (a *attempt) endSnapshots(ctx context.Context, b *velerov1.Backup) {
	if a.first && !a.collecting {
		return
	}
	if a.PodVolumes != nil {
		if err := a.PodVolumes.CancelBackups(ctx, b, "the backup failed"); err != nil {
			a.held.Log.WarnContext(ctx, "Failed to cancel the PodVolumeBackups of a failed backup; they may still be running", "error", err)
		}
	}
	if a.CSI == nil {
		return
	}
	live, err := a.held.Update(ctx, func(*velerov1.Backup) error { return kube.ErrSkip })
	if err == nil && mark.IsCommitting(live) {
		err = errCommitting
	}
	if err == nil {
		err = a.CSI.End(ctx, csisnapshot.Owner{Name: b.Name, UID: b.UID}, func(types.NamespacedName) bool { return false })
	}
	if err != nil {
		a.held.Log.WarnContext(ctx, "Did not delete all CSI snapshots of the failed backup; the deletion of the backup removes the rest", "error", err)
	}
}

// failedError ends the backup as Failed on the object alone: the name in the bucket is not this
// backup's, or the bucket cannot be written.
type failedError struct{ reason string }

func (e *failedError) Error() string { return e.reason }

// unopenedError is a location that does not open now. It hides its cause, which would be tried
// again.
type unopenedError struct {
	name string
	err  error
}

func (e *unopenedError) Error() string {
	return fmt.Sprintf("BackupStorageLocation %q: %v", e.name, e.err)
}

// isFinalizing reports the phases of a backup whose items are stored, and whose operations have ended
// if it had any. A runner of this version writes the end of one without operations right after
// InProgress; so without a composition it is another server's.
func isFinalizing(p velerov1.BackupPhase) bool {
	return p == velerov1.BackupPhaseFinalizing || p == velerov1.BackupPhaseFinalizingPartiallyFailed
}

// reachCommit reaches the commit, by the steps for what the bucket holds of the backup.
func (a *attempt) reachCommit(ctx context.Context, s *finalize.State) error {
	stored, found, err := commit.Committed(ctx, s.Store, a.held.Object)
	switch {
	case err != nil:
		return a.storeError(ctx, err)
	case found && stored.Status.Phase.Terminal():
		s.Decide(stored)
		return nil
	case found:
		return a.endForeign(ctx, s, stored)
	case isFinalizing(a.held.Object.Status.Phase):
		if err := a.checkCollected(ctx, s.Store); err != nil {
			return err
		}
	}
	dir := &backupDirectory{Kind: a.Kind, held: a.held, store: s.Store, cluster: s.Cluster}
	if err := dir.reserveDirectory(ctx); err != nil {
		return a.storeError(ctx, err)
	}
	a.reserved = true
	s.Cause = s.Run(ctx, finalize.Backup())
	var waiting *finalize.WaitingError
	if s.Cause == nil || finalize.Stopped(ctx, s.Cause) || errors.As(s.Cause, &waiting) {
		return s.Cause
	}
	return a.backupFailed(ctx, s)
}

// backupFailed commits a backup as Failed.
func (a *attempt) backupFailed(ctx context.Context, s *finalize.State) error {
	err := s.Run(ctx, finalize.Failure())
	if errors.Is(err, finalize.ErrComposed) {
		return a.reachCommit(ctx, s)
	}
	if err != nil {
		// Only the bucket's answer is judged: the file may be there or not by that.
		return a.storeError(ctx, fmt.Errorf("write the failure %q to the bucket: %w", s.Cause.Error(), err))
	}
	return nil
}

// storeError turns a bucket that fails for good into a failure of the backup. Once the backup may
// have been committed, only a bucket that refuses is one: an answer that got lost may have been a
// success, and the next holder of the backup reads it.
func (a *attempt) storeError(ctx context.Context, err error) error {
	switch {
	case finalize.Stopped(ctx, err):
		return err
	case errors.Is(err, commit.ErrForeign):
		return &failedError{reason: commit.ErrForeign.Error()}
	case a.reserved && !retrystore.Refused(err):
		return &unreachableError{err}
	}
	return &failedError{reason: err.Error()}
}
