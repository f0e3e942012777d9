package server

import (
	"context"

	"google.golang.org/protobuf/types/known/timestamppb"

	queuev1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/queue/v1"
	"github.com/holdfast-io/holdfast/services/queue-scheduler/internal/queue"
)

// maxObstacles is how many obstacles an explanation lists: the first is enough to act on, and a queue
// may be thousands long.
const maxObstacles = 50

// ExplainBackup implements queue.v1.QueueService.
func (s *Server) ExplainBackup(ctx context.Context, req *queuev1.ExplainBackupRequest) (*queuev1.ExplainBackupResponse, error) {
	x, err := s.Queue.Explain(ctx, req.GetName())
	if err != nil {
		return nil, err
	}
	resp := &queuev1.ExplainBackupResponse{Entry: wireEntry(&x.Job), Message: x.String()}
	resp.Obstacles, resp.ObstaclesLeftOut = wireObstacles(x.Obstacles)
	switch {
	case len(x.Obstacles) > 0:
		resp.Reason = resp.GetObstacles()[0].GetReason()
	case x.Job.Waits:
		resp.Reason = queuev1.WaitReason_WAIT_REASON_NEXT_PASS
	}
	return resp, nil
}

var reasons = map[queue.Reason]queuev1.WaitReason{
	queue.OverlapRunning: queuev1.WaitReason_WAIT_REASON_OVERLAP_RUNNING,
	queue.RestoreAhead:   queuev1.WaitReason_WAIT_REASON_RESTORE_AHEAD,
	queue.OverlapAhead:   queuev1.WaitReason_WAIT_REASON_OVERLAP_AHEAD,
	queue.NoPlace:        queuev1.WaitReason_WAIT_REASON_NO_PLACE,

	queue.LocationUnavailable: queuev1.WaitReason_WAIT_REASON_LOCATION_UNAVAILABLE,
	queue.WriteRefused:        queuev1.WaitReason_WAIT_REASON_WRITE_REFUSED,
}

// wireObstacles are the first obstacles, and how many more there are.
func wireObstacles(all []queue.Obstacle) (out []*queuev1.Obstacle, leftOut int32) {
	shown := all[:min(len(all), maxObstacles)]
	for _, o := range shown {
		out = append(out, wireObstacle(o))
	}
	return out, int32(min(len(all)-len(shown), 1<<30))
}

func wireObstacle(o queue.Obstacle) *queuev1.Obstacle {
	out := &queuev1.Obstacle{Reason: reasons[o.Reason], Namespaces: o.Namespaces, Since: timestamppb.New(o.Since), Limit: int32(min(o.Limit, 1<<30)), Message: o.Message}
	for _, j := range o.Jobs {
		out.Jobs = append(out.Jobs, &queuev1.JobReference{Kind: kinds[j.Kind], Name: j.Name, Uid: string(j.UID)})
	}
	return out
}
