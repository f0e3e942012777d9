package app

import (
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

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
	if len(metadata.ValueFromIncomingContext(stream.Context(), forwardedKey)) == 0 {
		l.forward = func(holder string) error { return s.forwardLogs(stream.Context(), holder, req, stream.Send) }
	}
	if req.GetFollow() {
		return s.source.Follow(stream.Context(), req.GetName(), l.sendNew)
	}
	r, err := s.source.Read(stream.Context(), req.GetName())
	if err != nil {
		return err
	}
	if err = l.sendNew(r); err == nil && l.tail == nil && !l.forwarded {
		err = fmt.Errorf("restore %q is not being worked on, it is %q: %w", r.Name, r.Status.Phase, errgrpc.ErrPrecondition)
	}
	return err
}

// logStream sends the log of a restore: of this process, or all that the instance sends that has the log.
type logStream struct {
	server    *restoreServer
	send      func(*restorev1.StreamLogsResponse) error
	forward   func(holder string) error // nil for a call that was forwarded to this process
	forwarded bool
	tail      *joblog.Tail // nil before the first line
	next      int64
}

// sendNew sends the lines that were not sent yet. Its errors wrap errgrpc.ErrUnavailable where a later attempt at the
// restore has a log of its own, and are those of sendFromHolder.
func (l *logStream) sendNew(r *velerov1.Restore) error {
	tail := l.server.jobs.LogTail(r.UID)
	if holder := mark.ClaimOwner(r, r.Status.Phase.Terminal()); holder != "" && holder != l.server.instance {
		return l.sendFromHolder(r.Name, holder)
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

// sendFromHolder sends the log that another instance has, to its end. Its errors are those of forward, and wrap
// errgrpc.ErrUnavailable where lines of an earlier attempt were sent, errgrpc.ErrPrecondition where the call was forwarded
// to this process.
func (l *logStream) sendFromHolder(name, holder string) error {
	switch {
	case l.tail != nil || l.forwarded:
		return fmt.Errorf("restore %q was begun again by instance %s: %w", name, holder, errgrpc.ErrUnavailable)
	case l.forward == nil:
		return fmt.Errorf("instance %s works on restore %q, and has its log: %w", holder, name, errgrpc.ErrPrecondition)
	}
	l.forwarded = true
	return l.forward(holder)
}
