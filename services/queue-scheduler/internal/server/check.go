package server

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/types/known/structpb"
	"k8s.io/apimachinery/pkg/runtime"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/validate"
	queuev1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/queue/v1"
)

// CheckBackup implements queue.v1.QueueService.
func (s *Server) CheckBackup(ctx context.Context, req *queuev1.CheckBackupRequest) (*queuev1.CheckBackupResponse, error) {
	b := &velerov1.Backup{ObjectMeta: s.objectMeta(req.GetName(), req.GetLabels(), req.GetAnnotations())}
	b.APIVersion, b.Kind = velerov1.GroupVersion.String(), "Backup"
	if err := validate.DecodeSpec(req.GetSpec(), &b.Spec); err != nil {
		return nil, err
	}
	x, problems, err := s.Queue.Foresee(ctx, b)
	if err != nil {
		return nil, err
	}
	if err := problems.LastingProblems().Err(); err != nil {
		return nil, err
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(b)
	if err != nil {
		return nil, fmt.Errorf("encode the backup: %w", err)
	}
	completed, err := structpb.NewStruct(fields)
	if err != nil {
		return nil, fmt.Errorf("encode the backup: %w", err)
	}
	resp := &queuev1.CheckBackupResponse{Backup: completed, Namespaces: x.Job.Namespaces}
	resp.Obstacles, resp.ObstaclesLeftOut = wireObstacles(x.Obstacles)
	if len(x.Obstacles) > 0 {
		resp.Message = x.String()
	}
	return resp, nil
}
