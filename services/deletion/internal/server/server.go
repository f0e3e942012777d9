// Package server is the gRPC side of the deletion service: it makes and shows DeleteBackupRequests.
package server

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/types/known/timestamppb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	deletionv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/deletion/v1"
)

// reasonInProgress is the reason of FAILED_PRECONDITION for a backup that is being written.
const reasonInProgress = "BACKUP_IN_PROGRESS"

// reasonRestoring is the reason of FAILED_PRECONDITION for a backup that is being restored.
const reasonRestoring = "RESTORE_IN_PROGRESS"

// maxBase leaves room for what the API server appends to a generated name.
const maxBase = 240

// Server implements DeletionService. Errors are Go errors that the gRPC server's interceptor
// translates.
type Server struct {
	deletionv1.UnimplementedDeletionServiceServer
	Reader    client.Reader // uncached
	Client    client.Writer
	Namespace string
	// Running reports whether a backup cannot be deleted yet.
	Running func(*velerov1.Backup) bool
	// Restoring returns which restores of a backup run; "" if none does, or the deletion has begun.
	Restoring func(ctx context.Context, b *velerov1.Backup) (string, error)
}

// DeleteBackup implements DeletionService.
func (s *Server) DeleteBackup(ctx context.Context, req *deletionv1.DeleteBackupRequest) (*deletionv1.DeleteBackupResponse, error) {
	var backup velerov1.Backup
	if err := s.Reader.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: req.GetBackup()}, &backup); err != nil {
		return nil, fmt.Errorf("backup %q: %w", req.GetBackup(), err)
	}
	if s.Running(&backup) {
		err := fmt.Errorf("backup %q is still in progress (%s): %w", backup.Name, backup.Status.Phase, errgrpc.ErrPrecondition)
		return nil, errgrpc.WithReason(err, reasonInProgress, map[string]string{"backup": backup.Name, "phase": string(backup.Status.Phase)})
	}
	busy, err := s.Restoring(ctx, &backup)
	if err != nil {
		return nil, err
	}
	if busy != "" {
		err := fmt.Errorf("backup %q: %s: %w", backup.Name, busy, errgrpc.ErrPrecondition)
		return nil, errgrpc.WithReason(err, reasonRestoring, map[string]string{"backup": backup.Name})
	}
	request, err := s.findOpenRequest(ctx, &backup)
	if err != nil {
		return nil, err
	}
	if request == nil {
		if request, err = s.createRequest(ctx, &backup); err != nil {
			return nil, err
		}
	}
	return &deletionv1.DeleteBackupResponse{Deletion: toProto(request)}, nil
}

// GetDeletion implements DeletionService.
func (s *Server) GetDeletion(ctx context.Context, req *deletionv1.GetDeletionRequest) (*deletionv1.GetDeletionResponse, error) {
	var request velerov1.DeleteBackupRequest
	if err := s.Reader.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: req.GetName()}, &request); err != nil {
		return nil, fmt.Errorf("deletion %q: %w", req.GetName(), err)
	}
	return &deletionv1.GetDeletionResponse{Deletion: toProto(&request)}, nil
}

// findOpenRequest finds an unprocessed request for this very backup.
func (s *Server) findOpenRequest(ctx context.Context, b *velerov1.Backup) (*velerov1.DeleteBackupRequest, error) {
	var list velerov1.DeleteBackupRequestList
	if err := s.Reader.List(ctx, &list, client.InNamespace(s.Namespace)); err != nil {
		return nil, fmt.Errorf("list deletion requests: %w", err)
	}
	for i := range list.Items {
		d := &list.Items[i]
		uid := d.Labels[velerov1.LabelBackupUID]
		if d.Spec.BackupName == b.Name && d.Status.Phase != velerov1.DeleteBackupRequestPhaseProcessed && (uid == "" || uid == string(b.UID)) {
			return d, nil
		}
	}
	return nil, nil //nolint:nilnil // there need not be one
}

func (s *Server) createRequest(ctx context.Context, b *velerov1.Backup) (*velerov1.DeleteBackupRequest, error) {
	d := &velerov1.DeleteBackupRequest{ObjectMeta: metav1.ObjectMeta{
		Namespace: s.Namespace, GenerateName: b.Name[:min(len(b.Name), maxBase)] + "-", Labels: map[string]string{
			velerov1.LabelBackupName: velerov1.LabelValue(b.Name), velerov1.LabelBackupUID: string(b.UID),
		},
	}}
	d.Spec.BackupName = b.Name
	if err := s.Client.Create(ctx, d); err != nil {
		return nil, fmt.Errorf("create deletion request: %w", err)
	}
	return d, nil
}

func toProto(d *velerov1.DeleteBackupRequest) *deletionv1.Deletion {
	p := &deletionv1.Deletion{
		Name: d.Name, Uid: string(d.UID), Backup: d.Spec.BackupName, Errors: d.Status.Errors, CreateTime: timestamppb.New(d.CreationTimestamp.Time),
	}
	switch d.Status.Phase {
	case velerov1.DeleteBackupRequestPhaseInProgress:
		p.Phase = deletionv1.DeletionPhase_DELETION_PHASE_IN_PROGRESS
	case velerov1.DeleteBackupRequestPhaseProcessed:
		p.Phase = deletionv1.DeletionPhase_DELETION_PHASE_PROCESSED
	default:
		p.Phase = deletionv1.DeletionPhase_DELETION_PHASE_NEW
	}
	return p
}
