// Package download answers DownloadRequests with URLs that need no credentials, and serves files of
// stores that cannot sign URLs.
package download

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/location"
)

const (
	// ttl is how long a URL is valid and a request is kept (Velero 1.18).
	ttl = 10 * time.Minute
	// retry is how soon a request for something that does not exist (yet) is looked at again.
	// Clients wait half a minute or more.
	retry = 2 * time.Second
)

// Locations finds and opens locations; the caller closes the store.
type Locations interface {
	Get(ctx context.Context, name string) (*velerov1.BackupStorageLocation, error)
	Default(ctx context.Context) (*velerov1.BackupStorageLocation, error)
	Open(ctx context.Context, loc *velerov1.BackupStorageLocation) (objectstore.Store, error)
}

// Linker makes links to objects of stores that cannot sign URLs.
type Linker interface {
	URL(location, key string, ttl time.Duration) (string, error)
}

// Reconciler answers, and later deletes, DownloadRequests. Any number of replicas may answer one;
// the first write counts.
type Reconciler struct {
	Reader    client.Reader // uncached
	Client    client.Client
	Locations Locations
	Linker    Linker
	Clock     clock.PassiveClock
	Log       *slog.Logger
}

// Reconcile implements reconcile.Reconciler.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var dr velerov1.DownloadRequest
	if err := r.Reader.Get(ctx, req.NamespacedName, &dr); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if dr.DeletionTimestamp != nil {
		return reconcile.Result{}, nil
	}
	now := r.Clock.Now()
	if exp := dr.Status.Expiration; exp != nil && !exp.After(now) {
		return reconcile.Result{}, client.IgnoreNotFound(r.Client.Delete(ctx, &dr, client.Preconditions{UID: &dr.UID}))
	}
	if dr.Status.Phase == velerov1.DownloadRequestPhaseProcessed {
		return r.untilExpiry(&dr), nil
	}
	url, err := r.signURL(ctx, &dr)
	if err != nil && !isUnanswerable(err) {
		return reconcile.Result{}, err
	}
	if err != nil {
		r.Log.Info("Failed to answer download request; will retry", "request", dr.Name, "kind", string(dr.Spec.Target.Kind), "target", dr.Spec.Target.Name, "reason", err)
	}
	failpoint.Hit("manifest-indexer/download-before-status")
	if err := r.recordAnswer(ctx, &dr, url, now); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	failpoint.Hit("manifest-indexer/download-answered")
	if url == "" {
		return reconcile.Result{RequeueAfter: retry}, nil
	}
	return r.untilExpiry(&dr), nil
}

func (r *Reconciler) untilExpiry(dr *velerov1.DownloadRequest) reconcile.Result {
	if dr.Status.Expiration == nil {
		return reconcile.Result{RequeueAfter: ttl}
	}
	return reconcile.Result{RequeueAfter: max(dr.Status.Expiration.Sub(r.Clock.Now()), time.Second)}
}

// recordAnswer writes the answer, or without one only when the request ends.
func (r *Reconciler) recordAnswer(ctx context.Context, dr *velerov1.DownloadRequest, url string, now time.Time) error {
	return kube.Update(ctx, r.Reader, r.Client, dr, func(d *velerov1.DownloadRequest) error {
		if d.Status.Phase == velerov1.DownloadRequestPhaseProcessed || url == "" && d.Status.Expiration != nil {
			return kube.ErrSkip
		}
		expires := metav1.NewTime(now.Add(ttl))
		d.Status.Expiration = &expires
		if url != "" {
			d.Status.Phase, d.Status.DownloadURL = velerov1.DownloadRequestPhaseProcessed, url
		}
		return nil
	})
}

// signURL returns the URL. Whether the object exists is not checked: clients understand a 404.
func (r *Reconciler) signURL(ctx context.Context, dr *velerov1.DownloadRequest) (url string, err error) {
	target := dr.Spec.Target
	key, err := layout.ForDownload(string(target.Kind), target.Name)
	if err != nil {
		return "", fmt.Errorf("spec.target: %w", err)
	}
	loc, err := r.locationOf(ctx, dr.Namespace, target)
	if err != nil {
		return "", err
	}
	store, err := r.Locations.Open(ctx, loc)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if signer, ok := store.(objectstore.Signer); ok {
		url, err = signer.SignGet(ctx, key, ttl)
		if !errors.Is(err, objectstore.ErrUnsigned) {
			return url, err
		}
		r.Log.Debug("Object store signs no URLs; this service serves the artifact", "location", loc.Name, "reason", err)
	}
	return r.Linker.URL(loc.Name, key, ttl)
}

// locationOf finds where the files are: those of a restore lie with its backup, unless its mark names another location.
func (r *Reconciler) locationOf(ctx context.Context, namespace string, target velerov1.DownloadTarget) (*velerov1.BackupStorageLocation, error) {
	name := target.Name
	if layout.IsRestoreKind(string(target.Kind)) {
		var restore velerov1.Restore
		if err := r.Reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &restore); err != nil {
			return nil, fmt.Errorf("restore %q: %w", name, err)
		}
		if at := mark.FilesLocation(&restore); at != "" {
			return r.Locations.Get(ctx, at)
		}
		if name = restore.Spec.BackupName; name == "" {
			return nil, fmt.Errorf("restore %q: %w", restore.Name, errNoBackup)
		}
	}
	var backup velerov1.Backup
	if err := r.Reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &backup); err != nil {
		return nil, fmt.Errorf("backup %q: %w", name, err)
	}
	if backup.Spec.StorageLocation == "" {
		return r.Locations.Default(ctx)
	}
	return r.Locations.Get(ctx, backup.Spec.StorageLocation)
}

var errNoBackup = errors.New("its backup is not known yet")

// isUnanswerable errors lie in the request or in what it names; they are no fault of this service or
// the API server.
func isUnanswerable(err error) bool {
	return apierrors.IsNotFound(err) || errors.Is(err, errNoBackup) || errors.Is(err, location.ErrNoDefault) ||
		errors.Is(err, layout.ErrInvalidName) || errors.Is(err, layout.ErrUnknownKind)
}
