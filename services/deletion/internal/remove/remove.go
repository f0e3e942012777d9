// Package remove carries out DeleteBackupRequests: data first, the backup's own file last, the objects after that. Until its
// data is gone a backup stays listed, in this cluster and in the bucket.
package remove

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/claim"
	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/services/deletion/internal/slots"
)

// Outcome says what is left to do with a request.
type Outcome int

const (
	// Done means nothing, or only much later.
	Done Outcome = iota
	// Later means that somebody else is at it or in front of it: look again.
	Later
)

// keep is how long a request that ended with errors stays, to be read (Velero 1.18).
const keep = 24 * time.Hour

// annotationLocation keeps the name of the backup's location on a request in progress: the data is deleted to its end also when
// somebody deletes the Backup meanwhile.
const annotationLocation = "holdfast.io/deletion-location"

// Locations finds and opens locations; the caller closes the store.
type Locations interface {
	Get(ctx context.Context, name string) (*velerov1.BackupStorageLocation, error)
	Open(ctx context.Context, loc *velerov1.BackupStorageLocation) (objectstore.Store, error)
}

// Claims is this process as a holder of claims.
type Claims interface {
	Take(obj metav1.Object) (claim.Claim, error)
	Guard(ctx context.Context, obj client.Object) (context.Context, context.CancelFunc)
	Confirm(ctx context.Context, obj client.Object) error
}

// Remover carries out requests. It is safe for concurrent use.
type Remover struct {
	Reader    client.Reader // uncached
	Client    client.Client
	Namespace string
	Locations Locations
	Claims    Claims
	Actions   Actions // nil means that no plugin has any
	Snapshots Snapshots
	Clock     clock.WithTicker
	Log       *slog.Logger
	Metrics   *Metrics
	// RestoreWait bounds the wait for the backup's restores to go; 0 means a minute (Velero 1.18).
	RestoreWait time.Duration
	// Tries is how often one request tries what may succeed later; 0 means tries.PerRequest.
	Tries int
	// Slots bounds how many deletions work at once; nil means no bound.
	Slots *slots.Pool

	mu      sync.Mutex
	running map[string]bool // requests this process works on
}

// Process brings the named request forward as far as it can now. The error is a fault to retry, not one of the deletion: those
// are in the request.
func (r *Remover) Process(ctx context.Context, name string) (Outcome, error) {
	if !r.enter(name) {
		return Later, nil
	}
	defer r.leave(name)
	req := &velerov1.DeleteBackupRequest{}
	if err := r.Reader.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: name}, req); err != nil {
		return Done, client.IgnoreNotFound(err)
	}
	if req.DeletionTimestamp != nil {
		return Done, nil
	}
	if req.Status.Phase == velerov1.DeleteBackupRequestPhaseProcessed {
		return Done, r.expire(ctx, req)
	}
	if r.pauses(req) {
		return Later, nil
	}
	front, err := r.inFront(ctx, req)
	if front || err != nil {
		return Later, err
	}
	slot, ok := r.Slots.Try()
	if !ok {
		return Later, nil
	}
	defer slot.Leave()
	return r.begin(ctx, req, slot)
}

// enter keeps a second hint from taking the claim from this process's own work.
func (r *Remover) enter(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running[name] {
		return false
	}
	if r.running == nil {
		r.running = map[string]bool{}
	}
	r.running[name] = true
	return true
}

func (r *Remover) leave(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.running, name)
}

// begin refuses the request, or claims it and carries it out.
func (r *Remover) begin(ctx context.Context, req *velerov1.DeleteBackupRequest, slot *slots.Slot) (Outcome, error) {
	j, refusal, err := r.admit(ctx, req)
	if err != nil {
		return Later, err
	}
	if refusal != "" {
		return Done, r.refuse(ctx, req, refusal, j != nil && j.settled)
	}
	j.slot = slot
	failpoint.Hit("deletion/before-claim")
	var held *claim.HeldError
	err = r.claim(ctx, j)
	if errors.As(err, &held) || errors.Is(err, errProcessed) {
		return Later, nil
	}
	if err != nil {
		return Later, client.IgnoreNotFound(err)
	}
	failpoint.Hit("deletion/claimed")
	return r.carryOut(ctx, j)
}

var errProcessed = errors.New("request was processed meanwhile")

// claim writes phase InProgress, the claim and the labels in one patch.
func (r *Remover) claim(ctx context.Context, j *job) error {
	return kube.Update(ctx, r.Reader, r.Client, j.request, func(d *velerov1.DeleteBackupRequest) error {
		if d.Status.Phase == velerov1.DeleteBackupRequestPhaseProcessed {
			return errProcessed
		}
		var err error
		if j.claim, err = r.Claims.Take(d); err != nil {
			return err
		}
		if d.Labels == nil {
			d.Labels = map[string]string{}
		}
		d.Labels[velerov1.LabelBackupName] = velerov1.LabelValue(j.backup.Name)
		d.Labels[velerov1.LabelBackupUID] = string(j.backup.UID)
		if j.location != nil {
			metav1.SetMetaDataAnnotation(&d.ObjectMeta, annotationLocation, j.location.Name)
		}
		d.Status.Phase, d.Status.Errors = velerov1.DeleteBackupRequestPhaseInProgress, nil
		return claim.Set(d, j.claim)
	})
}

// refuse ends a request that cannot be carried out; settled marks it as one that stands for those to come.
func (r *Remover) refuse(ctx context.Context, req *velerov1.DeleteBackupRequest, reason string, settled bool) error {
	r.Log.Info("deletion refused", "request", req.Name, "backup", req.Spec.BackupName, "reason", reason)
	return client.IgnoreNotFound(kube.Update(ctx, r.Reader, r.Client, req, func(d *velerov1.DeleteBackupRequest) error {
		if d.Status.Phase == velerov1.DeleteBackupRequestPhaseProcessed {
			return kube.ErrSkip
		}
		if settled {
			metav1.SetMetaDataAnnotation(&d.ObjectMeta, annotationRefused, refusedVolumeData)
		}
		d.Status.Phase, d.Status.Errors = velerov1.DeleteBackupRequestPhaseProcessed, []string{reason}
		return nil
	}))
}

// expire removes a processed request after a day. Its end is not recorded, so its age counts (Velero 1.18).
func (r *Remover) expire(ctx context.Context, req *velerov1.DeleteBackupRequest) error {
	if r.Clock.Now().Sub(req.CreationTimestamp.Time) < keep {
		return nil
	}
	return r.deleteRequest(ctx, req)
}

// deleteRequest removes this very request.
func (r *Remover) deleteRequest(ctx context.Context, req *velerov1.DeleteBackupRequest) error {
	err := r.Client.Delete(ctx, req, client.Preconditions{UID: &req.UID})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete request %q: %w", req.Name, err)
	}
	return nil
}
