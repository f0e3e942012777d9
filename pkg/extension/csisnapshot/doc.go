// Package csisnapshot takes the data of claims on CSI drivers with the snapshot API of the cluster,
// snapshot.storage.k8s.io/v1: the actions that a backup runs for it, the progress of its
// operations, and the removal of what they made. Names, labels and annotations are Velero 1.18's,
// so that either server restores and deletes the other's backups.
//
// A snapshot is named after the idempotency key of the call that makes it. A repetition of the call
// finds the existing VolumeSnapshot, and makes no second one.
package csisnapshot

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/kube/retry"
)

// Names of the actions (Velero 1.18).
const (
	NameClaim    = "velero.io/csi-pvc-backupper"
	NameSnapshot = "velero.io/csi-volumesnapshot-backupper"
	NameContent  = "velero.io/csi-volumesnapshotcontent-backupper"
	NameClass    = "velero.io/csi-volumesnapshotclass-backupper"
	NameDelete   = "velero.io/csi-volumesnapshotcontent-delete"
)

// The resources of the snapshot API.
var (
	Snapshots = schema.GroupResource{Group: snapshotv1.GroupName, Resource: "volumesnapshots"}
	Contents  = schema.GroupResource{Group: snapshotv1.GroupName, Resource: "volumesnapshotcontents"}
	Classes   = schema.GroupResource{Group: snapshotv1.GroupName, Resource: "volumesnapshotclasses"}
)

var (
	claims  = schema.GroupResource{Resource: "persistentvolumeclaims"}
	secrets = schema.GroupResource{Resource: "secrets"}
)

const (
	// kind is what the actions would be registered as if a plugin had them, see action.Operation.
	kind = "BackupItemActionV2"
	// AnnotationKey on a VolumeSnapshot is the idempotency key of the call that made it.
	AnnotationKey = "holdfast.io/snapshot-key"
	// AnnotationVolume on a VolumeSnapshot describes the volume it is of, see Volume.
	AnnotationVolume = "holdfast.io/snapshot-volume"
)

// ErrNotServed means that the cluster does not serve the snapshot API.
var ErrNotServed = errors.New("the cluster does not serve snapshot.storage.k8s.io/v1")

// API is the cluster's API server. Every field is required.
type API struct {
	// Reader is uncached.
	Reader client.Reader
	Client client.Client
	Clock  clock.WithTicker
	Log    *slog.Logger
}

// retryCall repeats a call of the API server while it is away.
func (a API) retryCall(ctx context.Context, what string, do func() error) error {
	err := retry.Loop{Clock: a.Clock, Log: a.Log}.Do(ctx, what, do)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case meta.IsNoMatchError(err):
		return fmt.Errorf("%s: %w", what, ErrNotServed)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// getObject reads an object; found is false where there is none.
func (a API) getObject(ctx context.Context, namespace, name string, into client.Object) (found bool, err error) {
	err = a.retryCall(ctx, fmt.Sprintf("read %T %s", into, client.ObjectKey{Namespace: namespace, Name: name}), func() error {
		return a.Reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, into)
	})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

// named is the name of an action and the one resource it applies to.
type named struct {
	name     string
	resource schema.GroupResource
}

// Name implements action.Action.
func (n named) Name() string { return n.name }

// AppliesTo implements action.Action.
func (n named) AppliesTo(context.Context) (action.Selector, error) {
	return action.Selector{IncludedResources: []string{n.resource.String()}}, nil
}

// guardPanic, deferred, makes a panic an error and has errors name the action.
func (n named) guardPanic(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("panic: %v", r)
	}
	if *err != nil {
		*err = fmt.Errorf("action %s: Execute: %w", n.name, *err)
	}
}
