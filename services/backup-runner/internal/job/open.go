package job

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/holdfast-io/holdfast/pkg/job/engine"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/retrystore"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/finalize"
)

// openStore returns the store of the backup's location. A request to cancel cuts it short as long as
// nothing in the bucket can be this backup's.
func (a *attempt) openStore(ctx context.Context) (objectstore.Store, error) {
	if a.reserved {
		return a.openLocation(ctx)
	}
	opening, release := engine.Join(ctx, a.held.Cancelling())
	defer release()
	store, err := a.openLocation(opening)
	if asked := a.held.Cancelled(); asked != nil && err != nil && !finalize.Stopped(ctx, err) {
		err = &failedError{reason: asked.Error()}
	}
	return store, err
}

// openLocation opens the store, which retries its calls.
func (a *attempt) openLocation(ctx context.Context) (objectstore.Store, error) {
	name := a.held.Object.Spec.StorageLocation
	var store objectstore.Store
	started := a.Clock.Now()
	err := a.callLoop(a.held.Log).Do(ctx, "open the location", func() error {
		bsl, err := a.Locations.Get(ctx, name)
		if apierrors.IsNotFound(err) {
			return &failedError{reason: fmt.Sprintf("spec.storageLocation: BackupStorageLocation %q not found", name)}
		}
		if err != nil {
			return err
		}
		store, err = a.Locations.Open(ctx, bsl)
		if err == nil || ctx.Err() != nil {
			return err
		}
		// An error that passes for one of the network may last: a wrong name, an unknown
		// certificate.
		patient := kube.IsTransient(err) && a.Clock.Since(started) <= a.bucketPatience()
		switch {
		case patient:
			return err
		case a.reserved: // the bucket may hold the end of the backup
			return &unreachableError{&unopenedError{name: name, err: err}}
		}
		return &failedError{reason: fmt.Sprintf("BackupStorageLocation %q: %v", name, err)}
	})
	if err != nil {
		return nil, err
	}
	return &retrystore.Store{Store: store, Clock: a.Clock, Log: a.held.Log, Budget: a.StorePatience, Confirm: a.held.Confirm, Failing: a.noteBucketFailing}, nil
}
