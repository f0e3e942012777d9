package doctor

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/location"
)

// checkLocations checks every backup storage location.
func (e *examination) checkLocations(ctx context.Context, n *checkNotes) {
	list := &velerov1.BackupStorageLocationList{}
	if err := e.listObjects(ctx, list, client.InNamespace(e.Namespace)); err != nil {
		n.addFailure("", fmt.Sprintf("locations cannot be listed: %v", err), "install the definitions, and get the right to `list` backupstoragelocations")
		return
	}
	if len(list.Items) == 0 {
		n.addWarning("", "there is no BackupStorageLocation in namespace "+e.Namespace, "create one: backups have nowhere to go")
		return
	}
	if location.ChosenDefault(list.Items) == nil {
		n.addWarning("", "no location is the default", "set spec.default on one, or name a location with every backup")
	}
	for i := range list.Items {
		e.checkLocation(ctx, n, &list.Items[i])
	}
}

// checkLocation checks one of them, as far as it can be reached from here, within a time of its own.
func (e *examination) checkLocation(ctx context.Context, n *checkNotes, loc *velerov1.BackupStorageLocation) {
	ctx, cancel := context.WithTimeout(ctx, e.Timeout)
	defer cancel()
	if location.Provider(loc) == holdfast.ProviderFile && e.runsElsewhere() {
		n.addSkipped(loc.Name, "its directory is in the Pods of the services", "run this in one of them; `kubectl get backupstoragelocations` shows what the services find")
	} else if !e.bucketOf(ctx, n, loc) {
		return
	}
	if loc.Status.Phase == velerov1.LocationPhaseUnavailable {
		n.addWarning(loc.Name, "the services find it Unavailable: "+loc.Status.Message, "the message says why; if it is reachable from here alone, look at the network of the Pods")
	}
}

// bucketOf opens and checks a location's bucket, and reports whether it could be used.
func (e *examination) bucketOf(ctx context.Context, n *checkNotes, loc *velerov1.BackupStorageLocation) bool {
	note, err := e.Locations.Validate(ctx, loc)
	if err != nil {
		noteUnusable(n, loc, err)
		return false
	}
	store, err := e.Locations.Open(ctx, loc)
	if err != nil {
		noteUnusable(n, loc, err)
		return false
	}
	defer func() { _ = store.Close() }() // nothing is written any more
	if note != "" {
		n.addWarning(loc.Name, note, "use a store with conditional creation, or make sure that one cluster alone uses the bucket")
	}
	if loc.Spec.AccessMode == velerov1.LocationModeReadOnly {
		n.addOK(loc.Name, "it can be listed; nothing was written, since it is ReadOnly")
		return true
	}
	b := newBucket(store, e.Clock)
	b.contended = note == ""
	problems := b.examineBucket(ctx)
	for _, p := range problems {
		n.addFinding(p.status, loc.Name, p.message, p.remedy)
	}
	if len(problems) == 0 {
		once := ""
		if b.contended {
			once = "created once, "
		}
		n.addOK(loc.Name, fmt.Sprintf("objects can be written, read in ranges, %scomposed and deleted; its clock is within %s", once, skewNoted))
	}
	return true
}

// noteUnusable notes a location that cannot be opened, listed or written to.
func noteUnusable(n *checkNotes, loc *velerov1.BackupStorageLocation, err error) {
	if apierrors.IsForbidden(err) {
		n.addSkipped(loc.Name, fmt.Sprintf("its credentials cannot be read by you: %v", err), "run this as someone who may `get` the Secret")
		return
	}
	n.addFailure(loc.Name, err.Error(), remedyFor(err))
}

// remedyFor is what to do about an error of a location.
func remedyFor(err error) string {
	var field *errgrpc.FieldError
	switch {
	case errors.As(err, &field):
		return "correct " + field.Field + " of the BackupStorageLocation"
	case errors.Is(err, location.ErrForeignContent):
		return "use an empty bucket, or set spec.objectStorage.prefix to a directory of its own"
	case errors.Is(err, objectstore.ErrNoBucket):
		return "create the bucket, or correct spec.objectStorage.bucket"
	case errors.Is(err, objectstore.ErrAccess):
		return "check the keys in the Secret of spec.credential, and that they may list the bucket and get, put and delete its objects; a clock that is minutes off is refused too"
	case errors.Is(err, objectstore.ErrReadOnly):
		return "make the store writable for the services, or set spec.accessMode to ReadOnly"
	}
	return "check the address of the store (spec.config), the way to it from here, and its certificate (spec.objectStorage.caCert)"
}

// skew thresholds: S3 refuses requests whose time is 15 minutes off.
const (
	skewNoted   = time.Minute
	skewRefused = 10 * time.Minute
)
