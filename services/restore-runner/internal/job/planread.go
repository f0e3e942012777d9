package job

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/storedplan"
	"github.com/holdfast-io/holdfast/pkg/errgrpc"
)

// ReadPlan calls do with a stored plan, which is looked for in every location that is available.
func (k *Kind) ReadPlan(ctx context.Context, id string, do func(*storedplan.Header, iter.Seq2[*storedplan.Row, error]) error) error {
	var list velerov1.BackupStorageLocationList
	if err := k.cfg.Reader.List(ctx, &list, client.InNamespace(k.cfg.Namespace)); err != nil {
		return fmt.Errorf("list backup storage locations: %w", err)
	}
	var unread error
	for i := range list.Items {
		loc := &list.Items[i]
		if loc.Status.Phase != velerov1.LocationPhaseAvailable {
			continue
		}
		found, err := k.readPlanIn(ctx, loc, id, do)
		if found {
			return err
		}
		unread = errors.Join(unread, err)
	}
	if unread != nil {
		return unread
	}
	return fmt.Errorf("%w: plan %q", errgrpc.ErrNotFound, id)
}

func (k *Kind) readPlanIn(ctx context.Context, loc *velerov1.BackupStorageLocation, id string, do func(*storedplan.Header, iter.Seq2[*storedplan.Row, error]) error) (found bool, err error) {
	store, err := k.cfg.Locations.Open(ctx, loc)
	if err != nil {
		return false, fmt.Errorf("open location %q: %w", loc.Name, err)
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	header, err := storedplan.ReadHeader(ctx, store, id)
	if errors.Is(err, storedplan.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("location %q: %w", loc.Name, err)
	}
	return true, do(header, storedplan.Rows(ctx, store, id))
}
