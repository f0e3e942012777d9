package server

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/kube"
)

// lifetime is how long an answered request stays (Velero 1.18).
const lifetime = time.Minute

// ServerVersion is the version for clients: Velero's CLI warns unless major and minor are its own,
// so it is the version whose behaviour and formats are kept.
const ServerVersion = "v1.18.1+holdfast"

// StatusReconciler answers requests and deletes them a minute later. Any number of replicas may answer
// one; the first write counts.
type StatusReconciler struct {
	Reader client.Reader // uncached
	Client client.Client
	Clock  clock.PassiveClock
	// Plugins returns the plugins to list, built-in actions included.
	Plugins func() []velerov1.PluginInfo
}

// Reconcile implements reconcile.Reconciler.
func (r *StatusReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	ssr := &velerov1.ServerStatusRequest{}
	if err := r.Reader.Get(ctx, req.NamespacedName, ssr); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if ssr.DeletionTimestamp != nil {
		return reconcile.Result{}, nil
	}
	now := metav1.NewTime(r.Clock.Now())
	failpoint.Hit("manifest-indexer/server-status-before-answer")
	err := kube.Update(ctx, r.Reader, r.Client, ssr, func(s *velerov1.ServerStatusRequest) error {
		if s.Status.Phase == velerov1.ServerStatusRequestPhaseProcessed {
			return kube.ErrSkip
		}
		s.Status = velerov1.ServerStatusRequestStatus{
			Phase: velerov1.ServerStatusRequestPhaseProcessed, ProcessedTimestamp: &now, ServerVersion: ServerVersion, Plugins: r.Plugins(),
		}
		return nil
	})
	if err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if left := lifetime - now.Sub(processedAt(ssr)); left > 0 {
		return reconcile.Result{RequeueAfter: left}, nil
	}
	return reconcile.Result{}, client.IgnoreNotFound(r.Client.Delete(ctx, ssr, client.Preconditions{UID: &ssr.UID}))
}

// processedAt is when the request was answered; one without a timestamp counts from its creation.
func processedAt(ssr *velerov1.ServerStatusRequest) time.Time {
	if t := ssr.Status.ProcessedTimestamp; t != nil {
		return t.Time
	}
	return ssr.CreationTimestamp.Time
}
