package server

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/itemoperation"
	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
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
	// Clock paces Watch and dates requests to cancel.
	Clock clock.WithTicker
	// Actions are asked for the logs of operations.
	Actions *operation.Actions
}

// Owner is a Backup or Restore of the server namespace, Kind operation.KindBackup or KindRestore.
type Owner struct{ Kind, Name string }

// String returns `backup "name"`.
func (o Owner) String() string { return fmt.Sprintf("%s %q", strings.ToLower(o.Kind), o.Name) }

// Memory is how far operations are that this process follows; monitor.Monitor is one.
type Memory interface {
	// States returns the states of the operations of a job in the order of its list, nil where this
	// process does not follow it.
	States(kind, name string, uid types.UID) []operation.State
	// Wake has the operations of a job polled now. It returns when they were, or ctx has ended.
	Wake(ctx context.Context, kind, name string, uid types.UID)
}

// OfBackup returns the operations of a backup, oldest first; none recorded is an empty list. A
// backup that does not exist wraps errgrpc.ErrNotFound.
func (s *Source) OfBackup(ctx context.Context, name string) ([]itemoperation.Operation, error) {
	f, err := s.readOperations(ctx, Owner{operation.KindBackup, name})
	if err != nil {
		return nil, err
	}
	return s.listOperations(f), nil
}

// OfRestore is OfBackup for a restore, whose files lie with its backup, or in the location of its mark.
func (s *Source) OfRestore(ctx context.Context, name string) ([]itemoperation.Operation, error) {
	f, err := s.readOperations(ctx, Owner{operation.KindRestore, name})
	if err != nil {
		return nil, err
	}
	return s.listOperations(f), nil
}

// readJob reads the object of a job. An error wraps errgrpc.ErrNotFound where it does not exist.
func (s *Source) readJob(ctx context.Context, owner Owner) (client.Object, error) {
	var job client.Object = &velerov1.Backup{}
	if owner.Kind == operation.KindRestore {
		job = &velerov1.Restore{}
	}
	return job, s.getObject(ctx, strings.ToLower(owner.Kind), owner.Name, job)
}

// mayHaveBegun reports whether a job may have begun operations.
func mayHaveBegun(job client.Object) bool {
	switch job := job.(type) {
	case *velerov1.Backup:
		return job.Spec.StorageLocation != ""
	case *velerov1.Restore:
		return !job.Status.Phase.IsNew() && job.Status.Phase != velerov1.RestorePhaseFailedValidation
	}
	return false
}

// readOperations reads the operations of a job.
func (s *Source) readOperations(ctx context.Context, owner Owner) (*foundOperations, error) {
	job, err := s.readJob(ctx, owner)
	if err != nil {
		return nil, err
	}
	f := &foundOperations{job: job, kind: owner.Kind}
	if !mayHaveBegun(job) {
		return f, nil
	}
	return f, s.loadOperations(ctx, f)
}

// Store opens the location of a Backup or Restore. The caller closes it. A restore whose backup does
// not exist wraps errgrpc.ErrNotFound.
func (s *Source) Store(ctx context.Context, job client.Object) (objectstore.Store, error) {
	switch job := job.(type) {
	case *velerov1.Backup:
		return s.Stores.OpenName(ctx, job.Spec.StorageLocation)
	case *velerov1.Restore:
		if at := mark.FilesLocation(job); at != "" {
			return s.Stores.OpenName(ctx, at)
		}
		b := &velerov1.Backup{}
		if err := s.getObject(ctx, "backup", job.Spec.BackupName, b); err != nil {
			return nil, fmt.Errorf("restore %q: %w", job.Name, err)
		}
		return s.Stores.OpenName(ctx, b.Spec.StorageLocation)
	}
	return nil, fmt.Errorf("%T has no location", job)
}

func (s *Source) getObject(ctx context.Context, kind, name string, into client.Object) error {
	err := s.Reader.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: name}, into)
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("%s %q: %w", kind, name, errgrpc.ErrNotFound)
	}
	if err != nil {
		return fmt.Errorf("read %s %q: %w", kind, name, err)
	}
	return nil
}

// loadOperations reads the records of a job that has not ended, else its file.
func (s *Source) loadOperations(ctx context.Context, f *foundOperations) (err error) {
	store, err := s.Store(ctx, f.job)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	log, err := readRecords(ctx, store, f.kind, f.job)
	if log != nil {
		f.ops, f.states = log.Operations(), log.States()
	}
	if log != nil || err != nil {
		return err
	}
	f.file, err = readJobFile(ctx, store, f.kind, f.job.GetName())
	return err
}

// readJobFile reads the file of a job's operations; none is an empty list. A file that breaks off since the
// bucket does is not damaged.
func readJobFile(ctx context.Context, store objectstore.Store, kind, name string) (list []itemoperation.Operation, err error) {
	key := layout.BackupItemOperations(name)
	if kind == operation.KindRestore {
		key = layout.RestoreItemOperations(name)
	}
	file, err := store.Get(ctx, key)
	if errors.Is(err, objectstore.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", key, err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	from := &objectstore.ErrorReader{Reader: file}
	list, err = itemoperation.Decode(from)
	switch {
	case from.Err != nil:
		return nil, fmt.Errorf("read %s: %w", key, from.Err)
	case errors.Is(err, itemoperation.ErrCorrupt):
		return nil, fmt.Errorf("read %s: %w: %w", key, errgrpc.ErrCorrupt, err)
	}
	return list, err
}
