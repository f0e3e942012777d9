package server

import (
	"cmp"
	"context"
	"math"
	"strconv"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/holdfast-io/holdfast/pkg/job/ledger"
	"github.com/holdfast-io/holdfast/pkg/job/validate"
	"github.com/holdfast-io/holdfast/pkg/service/grpcserver"
	queuev1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/queue/v1"
	"github.com/holdfast-io/holdfast/services/queue-scheduler/internal/queue"
)

const (
	defaultPage = 100
	// maxMessage keeps messages well below the 4 MiB that gRPC clients accept.
	maxMessage = 1 << 20
)

// ListQueue implements queue.v1.QueueService.
func (s *Server) ListQueue(ctx context.Context, req *queuev1.ListQueueRequest) (*queuev1.ListQueueResponse, error) {
	first, err := grpcserver.PageOffset(req.GetPageToken())
	if err != nil {
		return nil, err
	}
	all, err := queueEntries(ctx, s.Queue)
	if err != nil {
		return nil, err
	}
	first = min(first, len(all))
	last := min(first+cmp.Or(int(req.GetPageSize()), defaultPage), len(all))
	last = first + messageLength(all[first:last])
	resp := &queuev1.ListQueueResponse{Entries: all[first:last]}
	if last < len(all) {
		resp.NextPageToken = strconv.Itoa(last)
	}
	return resp, nil
}

// queueEntries is the whole queue at this moment.
func queueEntries(ctx context.Context, q Queue) ([]*queuev1.QueueEntry, error) {
	jobs, err := q.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]*queuev1.QueueEntry, len(jobs))
	for i := range jobs {
		out[i] = wireEntry(&jobs[i])
	}
	return out, nil
}

// messageLength returns how many of the entries, one at least, make a message of a size that every client
// accepts.
func messageLength(entries []*queuev1.QueueEntry) int {
	size := 0
	for i, e := range entries {
		if size += proto.Size(e); size > maxMessage && i > 0 {
			return i
		}
	}
	return len(entries)
}

func wireEntry(j *queue.Job) *queuev1.QueueEntry {
	e := &queuev1.QueueEntry{
		Kind: kinds[j.Kind], Namespace: j.Object.GetNamespace(), Name: j.Object.GetName(), Uid: string(j.Object.GetUID()),
		Phase: j.Phase, Position: int32(min(j.Position, math.MaxInt32)), Sequence: j.Sequence, Namespaces: j.Namespaces,
		CreateTime: timestamppb.New(j.Object.GetCreationTimestamp().Time),
	}
	if !j.Admitted.IsZero() {
		e.AdmitTime = timestamppb.New(j.Admitted)
	}
	if j.Waits && j.Kind == ledger.KindBackup {
		e.Priority, e.EffectivePriority = classes[j.Class], classes[j.Effective]
	}
	return e
}

var kinds = map[string]queuev1.JobKind{
	ledger.KindBackup:  queuev1.JobKind_JOB_KIND_BACKUP,
	ledger.KindRestore: queuev1.JobKind_JOB_KIND_RESTORE,
}

var classes = map[validate.Priority]queuev1.Priority{
	validate.PriorityLow:    queuev1.Priority_PRIORITY_LOW,
	validate.PriorityNormal: queuev1.Priority_PRIORITY_NORMAL,
	validate.PriorityHigh:   queuev1.Priority_PRIORITY_HIGH,
}
