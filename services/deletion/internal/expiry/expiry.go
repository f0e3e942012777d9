// Package expiry requests the deletion of backups that have expired.
package expiry

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

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/service/rungroup"
)

// namePrefix and a backup's UID name its request: asking twice is asking once.
const namePrefix = "expired-"

// Locations finds locations.
type Locations interface {
	Get(ctx context.Context, name string) (*velerov1.BackupStorageLocation, error)
}

// Collector requests the deletion of expired backups.
type Collector struct {
	Reader    client.Reader // uncached
	Client    client.Client
	Namespace string
	Locations Locations
	Clock     clock.WithTicker
	Log       *slog.Logger
	// Period is the time between two passes, and the least pause after a failed attempt.
	Period time.Duration
	// Running reports whether a backup cannot be deleted yet.
	Running func(*velerov1.Backup) bool
	// NeverWritten reports that a backup has no data: its location does not matter, and may not be known.
	NeverWritten func(*velerov1.Backup) bool
	// PermanentlyRefused reports of a processed request that another one would be refused for the
	// same reason. No other one is made until it is removed, a day after its creation.
	PermanentlyRefused func(req *velerov1.DeleteBackupRequest, backup *velerov1.Backup) bool
}

// Run makes passes until ctx ends. Failures are logged and retried.
func (c *Collector) Run(ctx context.Context) error {
	return rungroup.RunPeriodically(ctx, c.Clock, c.Period, nil, func(ctx context.Context) {
		if err := c.Pass(ctx); err != nil && ctx.Err() == nil {
			c.Log.Error("Failed to request deletion of expired backups; will retry", "error", err)
		}
	})
}

// Pass checks every backup once. One that fails does not hold up the others.
func (c *Collector) Pass(ctx context.Context) error {
	var list velerov1.BackupList
	if err := c.Reader.List(ctx, &list, client.InNamespace(c.Namespace)); err != nil {
		return fmt.Errorf("list backups: %w", err)
	}
	now := c.Clock.Now()
	var needed map[string]bool
	var errs []error
	for i := range list.Items {
		b := &list.Items[i]
		if exp := b.Status.Expiration; exp == nil || exp.After(now) || b.DeletionTimestamp != nil || c.Running(b) {
			continue
		}
		if needed == nil {
			var err error
			if needed, err = c.neededBackups(ctx); err != nil {
				return err
			}
		}
		if needed[b.Name] {
			c.Log.Info("Expired backup is kept until its restores have ended", "backup", b.Name)
			continue
		}
		if err := c.collectBackup(ctx, b); err != nil {
			errs = append(errs, fmt.Errorf("backup %q: %w", b.Name, err))
		}
	}
	return errors.Join(errs...)
}

// neededBackups returns the backups with restores that run or wait to: the deletion of an
// expired backup can wait.
func (c *Collector) neededBackups(ctx context.Context) (map[string]bool, error) {
	var list velerov1.RestoreList
	if err := c.Reader.List(ctx, &list, client.InNamespace(c.Namespace)); err != nil {
		return nil, fmt.Errorf("list restores: %w", err)
	}
	needed := map[string]bool{}
	for i := range list.Items {
		if r := &list.Items[i]; !r.Status.Phase.Terminal() {
			needed[r.Spec.BackupName] = true
		}
	}
	return needed, nil
}

// collectBackup notes on the backup why it cannot be deleted, or requests the deletion (Velero 1.18).
func (c *Collector) collectBackup(ctx context.Context, b *velerov1.Backup) error {
	obstacle, retry := "", false
	loc, err := c.Locations.Get(ctx, b.Spec.StorageLocation)
	switch {
	case c.NeverWritten(b):
	case apierrors.IsNotFound(err):
		obstacle = velerov1.GCFailureLocationNotFound
	case err != nil:
		return errors.Join(err, c.setReasonLabel(ctx, b, velerov1.GCFailureLocationCannotGet))
	case loc.Status.Phase == velerov1.LocationPhaseUnavailable:
		retry = true
	case loc.Spec.AccessMode == velerov1.LocationModeReadOnly:
		obstacle = velerov1.GCFailureLocationReadOnly
	}
	if retry {
		return nil // the next pass
	}
	if err := c.setReasonLabel(ctx, b, obstacle); err != nil || obstacle != "" {
		return err
	}
	pending, before, err := c.hasPendingRequest(ctx, b)
	if err != nil || pending {
		return err
	}
	return c.requestDeletion(ctx, b, before)
}

// setReasonLabel sets or, if empty, removes the label with the reason why an expired backup stays.
func (c *Collector) setReasonLabel(ctx context.Context, b *velerov1.Backup, value string) error {
	if b.Labels[velerov1.LabelGCFailure] == value {
		return nil
	}
	return client.IgnoreNotFound(kube.Update(ctx, c.Reader, c.Client, b, func(b *velerov1.Backup) error {
		if value == "" {
			delete(b.Labels, velerov1.LabelGCFailure)
			return nil
		}
		if b.Labels == nil {
			b.Labels = map[string]string{}
		}
		b.Labels[velerov1.LabelGCFailure] = value
		return nil
	}))
}

// hasPendingRequest reports whether a request is under way, or failed so recently that another one would only
// do the same; else what became of earlier ones.
func (c *Collector) hasPendingRequest(ctx context.Context, b *velerov1.Backup) (_ bool, before Tries, err error) {
	var list velerov1.DeleteBackupRequestList
	if err := c.Reader.List(ctx, &list, client.InNamespace(c.Namespace)); err != nil {
		return false, before, fmt.Errorf("list deletion requests: %w", err)
	}
	for i := range list.Items {
		d := &list.Items[i]
		if d.Spec.BackupName != b.Name {
			continue
		}
		if d.Status.Phase != velerov1.DeleteBackupRequestPhaseProcessed {
			return true, before, nil
		}
		if d.Name != requestName(b) {
			continue
		}
		before = ReadTries(d)
		if now := c.Clock.Now(); now.Sub(d.CreationTimestamp.Time) < c.Period || before.After.After(now) || c.PermanentlyRefused(d, b) {
			return true, before, nil
		}
		if err := c.Client.Delete(ctx, d, client.Preconditions{UID: &d.UID}); client.IgnoreNotFound(err) != nil {
			return false, before, fmt.Errorf("delete request %q: %w", d.Name, err)
		}
	}
	return false, before, nil
}

func (c *Collector) requestDeletion(ctx context.Context, b *velerov1.Backup, before Tries) error {
	d := &velerov1.DeleteBackupRequest{ObjectMeta: metav1.ObjectMeta{
		Namespace: b.Namespace, Name: requestName(b), Labels: map[string]string{
			velerov1.LabelBackupName: velerov1.LabelValue(b.Name), velerov1.LabelBackupUID: string(b.UID),
		},
	}}
	d.Spec.BackupName = b.Name
	if before.Failed > 0 { // the pauses between tries go on growing
		if err := before.Set(d); err != nil {
			return err
		}
	}
	failpoint.Hit("deletion/expiry-before-request")
	if err := c.Client.Create(ctx, d); err != nil {
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return fmt.Errorf("create deletion request: %w", err)
	}
	failpoint.Hit("deletion/expiry-requested")
	c.Log.Info("Backup expired; created a DeleteBackupRequest", "backup", b.Name, "request", d.Name)
	return nil
}

func requestName(b *velerov1.Backup) string { return namePrefix + string(b.UID) }
