package remove

import (
	"context"
	"errors"
	"log/slog"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/job/engine"
	"github.com/holdfast-io/holdfast/pkg/job/jobtest"
	"github.com/holdfast-io/holdfast/pkg/messaging"
)

// Outcome is what is left to do with a request.
type Outcome string

const (
	// Done means that it was processed, or is gone.
	Done Outcome = "done"
	// Later means that it has to be looked at again.
	Later Outcome = "later"
)

// replica is a process that carries out requests.
type replica struct {
	*Remover
	bed    *bed
	engine *engine.Engine[*velerov1.DeleteBackupRequest]
}

// newRemover is another replica.
func (b *bed) newRemover(c client.WithWatch, claims engine.Instance) *replica {
	return b.newRemoverOf(c, claims, 64)
}

// newRemoverOf is a replica that works on so many deletions at once.
func (b *bed) newRemoverOf(c client.WithWatch, claims engine.Instance, places int) *replica {
	r := &Remover{Reader: c, Client: c, Namespace: "velero", Locations: b, Clock: b.clock, Log: slog.New(slog.DiscardHandler)}
	return &replica{Remover: r, bed: b, engine: engine.New(engine.Config[*velerov1.DeleteBackupRequest]{
		Service: "deletion", ObjectKind: "DeleteBackupRequest", Kind: r,
		New:     func() *velerov1.DeleteBackupRequest { return &velerov1.DeleteBackupRequest{} },
		NewList: func() client.ObjectList { return &velerov1.DeleteBackupRequestList{} },
		Reader:  c, Cached: c, Client: c, Namespace: "velero", Instance: claims, Bus: jobtest.NewBus(), Work: messaging.WorkDeletionRun,
		Concurrency: places, Clock: b.clock, Log: r.Log,
	})}
}

// Process handles a request once in this replica.
func (r *replica) Process(ctx context.Context, name string) (Outcome, error) {
	req, err := r.readRequest(ctx, name)
	if req == nil || err != nil {
		return Done, err
	}
	if r.Terminal(req) {
		_, err := r.Finalize(ctx, req, func() bool { return true })
		return Done, err
	}
	var held *claim.HeldError
	if err := r.engine.Run(ctx, name, req.UID); err != nil && !errors.As(err, &held) {
		return Later, err
	}
	if req, err = r.readRequest(context.WithoutCancel(ctx), name); err != nil || req == nil || r.Terminal(req) {
		return Done, err
	}
	return Later, nil
}

// readRequest reads a request as it is; nil when it is gone.
func (r *replica) readRequest(ctx context.Context, name string) (*velerov1.DeleteBackupRequest, error) {
	req := &velerov1.DeleteBackupRequest{}
	err := r.bed.client.Get(ctx, client.ObjectKey{Namespace: "velero", Name: name}, req)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return req, err
}
