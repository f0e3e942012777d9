// Package operations finds the asynchronous operations of a job in the bucket.
package operations

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/itemoperation"
	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// Stores opens backup storage locations; location.Opener is one.
type Stores interface {
	OpenName(ctx context.Context, name string) (objectstore.Store, error)
}

// Source finds the operations of a job. Safe for concurrent use.
type Source struct {
	Reader    client.Reader // uncached
	Namespace string
	Stores    Stores
	// Memory is what this process has found out; nil for nothing.
	Memory Memory
}

// Memory is how far operations are that this process follows; monitor.Monitor is one.
type Memory interface {
	// States returns the states of the operations of a job in the order of its list, nil where this
	// process does not follow it.
	States(kind, name string, uid types.UID) []operation.State
}

// OfBackup returns the operations of a backup, oldest first; none recorded is an empty list. A
// backup that does not exist wraps errgrpc.ErrNotFound.
func (s *Source) OfBackup(ctx context.Context, name string) ([]itemoperation.Operation, error) {
	b := &velerov1.Backup{}
	if err := s.get(ctx, "backup", name, b); err != nil {
		return nil, err
	}
	if b.Spec.StorageLocation == "" {
		return nil, nil // not admitted yet: nothing has been started
	}
	return s.load(ctx, b.Spec.StorageLocation, operation.KindBackup, b, layout.BackupItemOperations(name))
}

// OfRestore is OfBackup for a restore, whose files lie beside its backup.
func (s *Source) OfRestore(ctx context.Context, name string) ([]itemoperation.Operation, error) {
	r := &velerov1.Restore{}
	if err := s.get(ctx, "restore", name, r); err != nil {
		return nil, err
	}
	if r.Status.Phase.IsNew() || r.Status.Phase == velerov1.RestorePhaseFailedValidation {
		return nil, nil // never begun
	}
	b := &velerov1.Backup{}
	if err := s.get(ctx, "backup", r.Spec.BackupName, b); err != nil {
		return nil, fmt.Errorf("restore %q: %w", name, err)
	}
	return s.load(ctx, b.Spec.StorageLocation, operation.KindRestore, r, layout.RestoreItemOperations(name))
}

// Store opens the location of a Backup or Restore. The caller closes it. A restore whose backup does
// not exist wraps errgrpc.ErrNotFound.
func (s *Source) Store(ctx context.Context, job client.Object) (objectstore.Store, error) {
	switch job := job.(type) {
	case *velerov1.Backup:
		return s.Stores.OpenName(ctx, job.Spec.StorageLocation)
	case *velerov1.Restore:
		b := &velerov1.Backup{}
		if err := s.get(ctx, "backup", job.Spec.BackupName, b); err != nil {
			return nil, fmt.Errorf("restore %q: %w", job.Name, err)
		}
		return s.Stores.OpenName(ctx, b.Spec.StorageLocation)
	}
	return nil, fmt.Errorf("%T has no location", job)
}

func (s *Source) get(ctx context.Context, kind, name string, into client.Object) error {
	err := s.Reader.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: name}, into)
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("%s %q: %w", kind, name, errgrpc.ErrNotFound)
	}
	if err != nil {
		return fmt.Errorf("read %s %q: %w", kind, name, err)
	}
	return nil
}

// load reads the records of a job that has not ended, else its file.
func (s *Source) load(ctx context.Context, location, kind string, job client.Object, key string) (list []itemoperation.Operation, err error) {
	store, err := s.Stores.OpenName(ctx, location)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if list, ok, err := s.recorded(ctx, store, kind, job); ok || err != nil {
		return list, err
	}
	file, err := store.Get(ctx, key)
	if errors.Is(err, objectstore.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", key, err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if list, err = itemoperation.Decode(file); err != nil {
		return nil, fmt.Errorf("read %s: %w: %w", key, errgrpc.ErrCorrupt, err)
	}
	return list, nil
}
