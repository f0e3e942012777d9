package job

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/claim"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/suspend"
)

// unreachableError is a bucket that did not answer for as long as it is waited for,
// and may hold what the backup stored or how it ended.
type unreachableError struct{ err error }

func (e *unreachableError) Error() string { return e.err.Error() }
func (e *unreachableError) Unwrap() error { return e.err }

// suspend releases the claim of a backup whose bucket is away, so that its place goes
// to others: nobody takes it up before it is admitted again. It reports whether that
// was written. A backup that finalizes holds no place, and is handed over.
func (j *execution) suspend(ctx context.Context, cause error) bool {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), handOverTime)
	defer stop()
	suspended := false
	err := kube.Update(ctx, j.Reader, j.Client, j.backup, func(b *velerov1.Backup) error {
		suspended = false
		if err := claim.Check(b, j.mine); err != nil {
			return err
		}
		if b.Status.Phase != velerov1.BackupPhaseInProgress {
			return kube.ErrSkip
		}
		if err := claim.Release(b); err != nil {
			return err
		}
		suspended = true
		return suspend.Set(b, suspend.Mark{Admission: j.admitted.Since, Reason: cause.Error()})
	})
	if err != nil {
		j.log.WarnContext(ctx, "backup not suspended", "error", err)
		return false
	}
	if suspended {
		j.log.WarnContext(ctx, "backup suspended until its bucket is reachable", "error", cause)
	}
	return suspended
}

// leave takes a deleted backup out of the ledger, now that nothing works on it any
// more. Where another instance may have taken it over before, its entry stays until
// queue-scheduler knows that this one has stopped too.
func (j *execution) leave(ctx context.Context) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), leaveTime)
	defer stop()
	if err := j.Instance.Confirm(ctx, j.claimed); err != nil {
		return
	}
	b := j.reference()
	err := j.Reader.Get(ctx, client.ObjectKeyFromObject(b), b)
	if err == nil && b.UID == j.backup.UID || err != nil && !apierrors.IsNotFound(err) {
		return
	}
	if err := j.Ledger.Release(ctx, j.backup.UID); err != nil && !errors.Is(err, context.Canceled) {
		j.log.WarnContext(ctx, "ledger entry of a deleted backup not released, it will be", "error", err)
		return
	}
	j.log.InfoContext(ctx, "ledger entry of a deleted backup released")
}

// leaveTime bounds leave.
const leaveTime = 5 * time.Second
