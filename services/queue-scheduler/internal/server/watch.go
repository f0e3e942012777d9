package server

import (
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	queuev1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/queue/v1"
)

// WatchQueue implements queue.v1.QueueService.
func (s *Server) WatchQueue(_ *queuev1.WatchQueueRequest, stream grpc.ServerStreamingServer[queuev1.WatchQueueResponse]) error {
	states, leave := s.Feed.joinFeed()
	defer leave()
	seen := map[string]*queuev1.QueueEntry{}
	for first := true; ; first = false {
		select {
		case <-stream.Context().Done():
			return stream.Context().Err()
		case now := <-states:
			if now.err != nil {
				return now.err
			}
			changed, removed := diffEntries(seen, now.entries)
			if !first && len(changed)+len(removed) == 0 {
				continue
			}
			if err := sendState(stream, changed, removed, timestamppb.New(now.read)); err != nil {
				return err
			}
		}
	}
}

// diffEntries updates seen to entries, and returns the changes.
func diffEntries(seen map[string]*queuev1.QueueEntry, entries []*queuev1.QueueEntry) (changed []*queuev1.QueueEntry, removed []string) {
	present := make(map[string]bool, len(entries))
	for _, e := range entries {
		present[e.GetUid()] = true
		if seen[e.GetUid()] != e {
			seen[e.GetUid()] = e
			changed = append(changed, e)
		}
	}
	for uid := range seen {
		if !present[uid] {
			delete(seen, uid)
			removed = append(removed, uid)
		}
	}
	return changed, removed
}

// sendState sends one state, in messages of a size every client accepts.
func sendState(stream grpc.ServerStreamingServer[queuev1.WatchQueueResponse], changed []*queuev1.QueueEntry, removed []string, read *timestamppb.Timestamp) error {
	for {
		n := messageLength(changed)
		m := &queuev1.WatchQueueResponse{Changed: changed[:n], RemovedUids: removed, Complete: n == len(changed), ReadTime: read}
		if err := stream.Send(m); err != nil || m.GetComplete() {
			return err
		}
		changed, removed = changed[n:], nil
	}
}
