package app

import (
	"fmt"

	"google.golang.org/grpc"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	restorev1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/restore/v1"
)

// logMessageBytes bounds the text in one message.
const logMessageBytes = 64 << 10

// StreamLogs implements RestoreService.
func (s *restoreServer) StreamLogs(req *restorev1.StreamLogsRequest, stream grpc.ServerStreamingServer[restorev1.StreamLogsResponse]) error {
	l := &logStream{server: s, send: stream.Send}
	if req.GetFollow() {
		return s.source.Follow(stream.Context(), req.GetName(), l.sendNew)
	}
	r, err := s.source.Read(stream.Context(), req.GetName())
	if err != nil {
		return err
	}
	if err = l.sendNew(r); err == nil && l.tail == nil {
		err = fmt.Errorf("restore %q is not being worked on, it is %q: %w", r.Name, r.Status.Phase, errgrpc.ErrPrecondition)
	}
	return err
}

// logStream sends the log of a restore that this process works on.
type logStream struct {
	server *restoreServer
	send   func(*restorev1.StreamLogsResponse) error
	tail   *joblog.Tail // nil before the first line
	next   int64
}

// sendNew sends the lines that were not sent yet. Its errors wrap errgrpc.ErrPrecondition where another instance
// works on the restore, errgrpc.ErrUnavailable where a later attempt of this one does, and has a log of its own.
func (l *logStream) sendNew(r *velerov1.Restore) error {
	tail := l.server.jobs.LogTail(r.UID)
	if holder := mark.ClaimOwner(r, r.Status.Phase.Terminal()); holder != "" && holder != l.server.instance {
		return fmt.Errorf("instance %s works on restore %q, and has its log: %w", holder, r.Name, errgrpc.ErrPrecondition)
	}
	if l.tail != nil && tail != nil && tail != l.tail {
		return fmt.Errorf("restore %q was begun again: %w", r.Name, errgrpc.ErrUnavailable)
	}
	if l.tail == nil {
		l.tail = tail
	}
	if l.tail == nil {
		return nil
	}
	for {
		text, next, leftOut := l.tail.Read(l.next, logMessageBytes)
		if next == l.next {
			return nil
		}
		if err := l.send(&restorev1.StreamLogsResponse{Text: text, LinesLeftOut: leftOut}); err != nil {
			return err
		}
		l.next = next
	}
}
