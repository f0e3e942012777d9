package job

import (
	"context"
	"errors"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/job/engine"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/finalize"
)

// attemptClaim is the claim of an attempt, as the steps to the end of its backup see it.
type attemptClaim struct{ a *attempt }

var _ finalize.Holder = attemptClaim{}

// Confirm implements finalize.Holder.
func (h attemptClaim) Confirm(ctx context.Context) error { return h.a.held.Confirm(ctx) }

// Cancelling implements finalize.Holder.
func (h attemptClaim) Cancelling() context.Context { return h.a.held.Cancelling() }

// Cancelled implements finalize.Holder.
func (h attemptClaim) Cancelled() *mark.CancelError { return h.a.held.Cancelled() }

// Present implements finalize.Holder.
func (h attemptClaim) Present(ctx context.Context) error {
	held := h.a.held
	return h.a.callLoop(held.Log).Do(ctx, "look at the backup before its commit", func() error {
		_, err := held.Update(ctx, func(*velerov1.Backup) error { return kube.ErrSkip })
		return err
	})
}

// BeginCommit implements finalize.Holder.
func (h attemptClaim) BeginCommit(ctx context.Context) error {
	err := h.a.held.BeginCommit(ctx, nil)
	var asked *mark.CancelError
	h.a.committing = h.a.committing || !errors.As(err, &asked) // the answer may have been lost
	return err
}

// Finish implements finalize.Holder. A backup that has ended already was counted and announced, by
// the process that ended it.
func (h attemptClaim) Finish(ctx context.Context, final *velerov1.Backup, contents finalize.Contents) error {
	held := h.a.held
	written, err := held.Finish(ctx, func(b *velerov1.Backup) error {
		mark.ClearPostHooks(b)
		if h.a.owes {
			if err := mark.SetPostHooks(b, mark.PostHooks{Owed: true}); err != nil {
				return err
			}
		}
		if contents.TarballSize > 0 {
			metav1.SetMetaDataAnnotation(&b.ObjectMeta, holdfast.AnnotationTarballBytes, strconv.FormatInt(contents.TarballSize, 10))
		}
		if contents.PlanDifferences != "" {
			metav1.SetMetaDataAnnotation(&b.ObjectMeta, holdfast.AnnotationPlanDifferences, contents.PlanDifferences)
		}
		expiration := b.Status.Expiration
		b.Status = *final.Status.DeepCopy()
		if b.Status.Expiration == nil {
			b.Status.Expiration = expiration
		}
		return nil
	})
	if errors.Is(err, engine.ErrEnded) {
		held.Log.WarnContext(ctx, "Backup has ended already", "phase", written.Status.Phase)
		return nil
	}
	if err != nil {
		return err
	}
	h.a.announceEnded(ctx, held.Log, written, contents)
	failpoint.Hit("backup-runner/event-published")
	return nil
}
