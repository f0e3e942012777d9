package server

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/timestamppb"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
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
	resp := &queuev1.ExplainBackupResponse{Entry: wireEntry(&x.Job), Message: explanationText(x)}
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

// explanationText returns what the first obstacle is or, without one, what the backup is doing.
func explanationText(x *queue.Explanation) string {
	if len(x.Obstacles) == 0 {
		return idleReason(&x.Job)
	}
	o := x.Obstacles[0]
	jobs := make([]string, len(o.Jobs))
	for i, j := range o.Jobs {
		jobs[i] = strings.ToLower(j.Kind) + " " + j.Name
	}
	more := ""
	if n := len(x.Obstacles) - 1; n == 1 {
		more = "; one more thing is in the way"
	} else if n > 1 {
		more = fmt.Sprintf("; %d more things are in the way", n)
	}
	switch o.Reason {
	case queue.OverlapRunning:
		return fmt.Sprintf("%s runs on %s%s", jobs[0], namespaceList(o.Namespaces), more)
	case queue.RestoreAhead:
		return fmt.Sprintf("%s waits for %s too and goes first%s", jobs[0], namespaceList(o.Namespaces), more)
	case queue.OverlapAhead:
		return fmt.Sprintf("%s is ahead in the queue and needs %s too%s", jobs[0], namespaceList(o.Namespaces), more)
	case queue.NoPlace:
		return fmt.Sprintf("%d of %d backups that may run at once do, or start before it: %s", len(o.Jobs), o.Limit, ledger.JoinNames(jobs))
	case queue.LocationUnavailable, queue.WriteRefused:
		return o.Message
	}
	return ""
}

// idleReason is for a backup with nothing in its way.
func idleReason(j *queue.Job) string {
	switch phase := velerov1.BackupPhase(j.Phase); {
	case j.Waits:
		return "nothing is in its way, it starts with the next pass"
	case phase.Terminal():
		return "it has ended: " + j.Phase
	case j.Object.GetDeletionTimestamp() != nil:
		return "it is being deleted"
	case phase == velerov1.BackupPhaseQueued, phase.IsNew(), phase == velerov1.BackupPhaseReadyToStart:
		return "it is admitted, and starts as soon as a backup-runner takes it"
	case phase == velerov1.BackupPhaseInProgress:
		return "it runs"
	}
	return "it does not wait in the queue any more: " + j.Phase
}

func namespaceList(names []string) string {
	switch {
	case slices.Equal(names, []string{"*"}):
		return "all namespaces"
	case ledger.IsAll(names):
		return "all namespaces but " + ledger.JoinNames(ledger.ExceptedNamespaces(names))
	case len(names) == 1:
		return "namespace " + names[0]
	}
	return "namespaces " + ledger.JoinNames(names)
}
