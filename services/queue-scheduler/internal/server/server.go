// Package server answers queue.v1.QueueService from the custom resources and the ledger: any
// replica gives the same answer.
package server

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/types/known/structpb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/validate"
	queuev1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/queue/v1"
	"github.com/holdfast-io/holdfast/services/queue-scheduler/internal/queue"
)

// Queue is the queue as it is read; queue.Scheduler is one.
type Queue interface {
	// Snapshot returns all unfinished jobs in the order of the queue.
	Snapshot(ctx context.Context) ([]queue.Job, error)
	// Explain returns what a backup waits for; an absent one is errgrpc.ErrNotFound.
	Explain(ctx context.Context, name string) (*queue.Explanation, error)
	// Foresee completes a backup that does not exist, and explains what it would wait for.
	Foresee(ctx context.Context, b *velerov1.Backup) (*queue.Explanation, validate.Problems, error)
}

// Server implements queue.v1.QueueService.
type Server struct {
	queuev1.UnimplementedQueueServiceServer
	Reader    client.Reader // uncached
	Client    client.Client
	Namespace string
	Canceller Canceller
	Queue     Queue
	// Feed serves those who watch the queue.
	Feed *Feed
}

// SubmitBackup implements queue.v1.QueueService.
func (s *Server) SubmitBackup(ctx context.Context, req *queuev1.SubmitBackupRequest) (*queuev1.SubmitBackupResponse, error) {
	b := &velerov1.Backup{ObjectMeta: s.objectMeta(req.GetName(), req.GetLabels(), req.GetAnnotations())}
	if err := createFromSpec(ctx, s.Client, b, "backup", req.GetSpec(), &b.Spec, validate.BackupSpec); err != nil {
		return nil, err
	}
	return &queuev1.SubmitBackupResponse{Namespace: b.Namespace, Name: b.Name, Uid: string(b.UID)}, nil
}

// SubmitRestore implements queue.v1.QueueService.
func (s *Server) SubmitRestore(ctx context.Context, req *queuev1.SubmitRestoreRequest) (*queuev1.SubmitRestoreResponse, error) {
	r := &velerov1.Restore{ObjectMeta: s.objectMeta(req.GetName(), req.GetLabels(), req.GetAnnotations())}
	if err := createFromSpec(ctx, s.Client, r, "restore", req.GetSpec(), &r.Spec, validate.RestoreSpec); err != nil {
		return nil, err
	}
	return &queuev1.SubmitRestoreResponse{Namespace: r.Namespace, Name: r.Name, Uid: string(r.UID)}, nil
}

// createFromSpec creates obj, whose spec is given as in.
func createFromSpec[S any](ctx context.Context, c client.Client, obj client.Object, noun string, in *structpb.Struct, spec *S, check func(*S) validate.Problems) error {
	if err := validate.DecodeSpec(in, spec); err != nil {
		return err
	}
	if err := check(spec).Err(); err != nil {
		return err
	}
	if err := c.Create(ctx, obj); err != nil {
		return fmt.Errorf("create %s: %w", noun, err)
	}
	return nil
}

func (s *Server) objectMeta(name string, labels, annotations map[string]string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: s.Namespace, Name: name, Labels: labels, Annotations: annotations}
}
