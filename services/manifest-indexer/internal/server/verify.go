package server

import (
	"context"
	"errors"
	"strings"
	"time"

	"google.golang.org/grpc"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/archive/tarball"
	manifestv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/manifest/v1"
)

// progressPeriod is how often a verification tells how far it is.
const progressPeriod = 2 * time.Second

// VerifyBackup implements ManifestService.
func (s *Server) VerifyBackup(req *manifestv1.VerifyBackupRequest, stream grpc.ServerStreamingServer[manifestv1.VerifyBackupResponse]) error {
	ctx, cancel := context.WithCancelCause(stream.Context())
	defer cancel(nil)
	told := time.Time{}
	found, rebuilt, err := s.Verify(ctx, req.GetBackup(), func(read, size int64) {
		if now := s.Clock.Now(); now.Sub(told) >= progressPeriod {
			told = now
			progress := &manifestv1.VerifyProgress{Bytes: read, TotalBytes: size}
			if err := stream.Send(&manifestv1.VerifyBackupResponse{Event: &manifestv1.VerifyBackupResponse_Progress{Progress: progress}}); err != nil {
				cancel(err)
			}
		}
	})
	if err != nil {
		return err
	}
	result := &manifestv1.VerifyResult{Objects: found.Objects, Bytes: found.Bytes, Found: found.Found, Rebuilt: rebuilt}
	for _, f := range found.Faults {
		kind := manifestv1.FaultKind_value["FAULT_KIND_"+strings.ToUpper(string(f.Kind))]
		result.Faults = append(result.Faults, &manifestv1.VerifyFault{Kind: manifestv1.FaultKind(kind), Path: f.Path, Detail: f.Detail})
	}
	return stream.Send(&manifestv1.VerifyBackupResponse{Event: &manifestv1.VerifyBackupResponse_Result{Result: result}})
}

// Verify compares a backup's tarball with its manifest. Rebuilt means that the backup has no manifest of its
// own, or a damaged one, which is a fault. A tarball of which no manifest can be made is a fault too, and one that
// is missing.
func (s *Server) Verify(ctx context.Context, backup string, progress func(read, size int64)) (v *tarball.Verification, rebuilt bool, err error) {
	v, rebuilt, err = s.verifyOnce(ctx, backup, progress)
	if !rebuilt && errors.Is(err, manifest.ErrCorrupt) { // the manifest is known to be damaged now
		v, rebuilt, err = s.verifyOnce(ctx, backup, progress)
	}
	switch {
	case errors.Is(err, errNoTarball):
		if needed, getErr := s.needsTarball(ctx, backup); !needed || getErr != nil {
			return nil, false, errors.Join(err, getErr)
		}
	case errors.Is(err, tarball.ErrCorrupt), errors.Is(err, tarball.ErrTooLarge):
		rebuilt = true
	default:
		return v, rebuilt, err
	}
	v = &tarball.Verification{}
	v.AddFault(tarball.FaultUnreadable, "", err.Error())
	return v, rebuilt, nil
}

// needsTarball reports whether a backup is one that has a tarball. It is read again: a deletion may have begun.
func (s *Server) needsTarball(ctx context.Context, name string) (bool, error) {
	var b velerov1.Backup
	if err := s.Reader.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: name}, &b); err != nil {
		return false, err
	}
	completed := b.Status.Phase == velerov1.BackupPhaseCompleted || b.Status.Phase == velerov1.BackupPhasePartiallyFailed
	return completed && b.DeletionTimestamp == nil, nil
}

func (s *Server) verifyOnce(ctx context.Context, backup string, progress func(read, size int64)) (v *tarball.Verification, rebuilt bool, err error) {
	m, err := s.openBackup(ctx, backup)
	if err != nil {
		return nil, false, err
	}
	defer m.close(&err)
	v, err = tarball.Verify(ctx, m.store, m.Reader, backup, s.Rebuilder.WorkDir, tarball.Limits{}, progress)
	if err != nil {
		return nil, m.rebuilt, codedError(err)
	}
	if m.rebuilt && s.Rebuilder.isDamaged(m.object) {
		v.AddFault(tarball.FaultManifest, "", "the manifest of the backup is damaged; the tarball was compared with one that was made of it")
	}
	return v, m.rebuilt, nil
}
