package queue_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	queuev1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/queue/v1"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/clitest"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/queue"
)

// service is a queue-scheduler that holds what the test puts in.
type service struct {
	queuev1.UnimplementedQueueServiceServer
	entries []*queuev1.QueueEntry
	// streams are what each call of WatchQueue sends; it then waits for the caller, or goes away
	// when leaves is set.
	mu      sync.Mutex
	streams [][]*queuev1.WatchQueueResponse
	leaves  bool
	pages   int
}

// ListQueue gives two entries a page at most.
func (s *service) ListQueue(_ context.Context, req *queuev1.ListQueueRequest) (*queuev1.ListQueueResponse, error) {
	s.pages++
	first := len(req.GetPageToken())
	last := min(first+2, len(s.entries))
	resp := &queuev1.ListQueueResponse{Entries: s.entries[first:last]}
	if last < len(s.entries) {
		resp.NextPageToken = strings.Repeat("x", last)
	}
	return resp, nil
}

func (s *service) ExplainBackup(_ context.Context, req *queuev1.ExplainBackupRequest) (*queuev1.ExplainBackupResponse, error) {
	for _, e := range s.entries {
		if e.GetName() == req.GetName() {
			return sampleExplanation(e), nil
		}
	}
	return nil, fmt.Errorf("backup %q: %w", req.GetName(), errgrpc.ErrNotFound)
}

func sampleExplanation(e *queuev1.QueueEntry) *queuev1.ExplainBackupResponse {
	if e.GetPosition() == 0 {
		return &queuev1.ExplainBackupResponse{Entry: e, Message: "it runs"}
	}
	return &queuev1.ExplainBackupResponse{
		Entry: e, Reason: queuev1.WaitReason_WAIT_REASON_OVERLAP_RUNNING, Message: "backup big runs on namespace a", ObstaclesLeftOut: 7,
		Obstacles: []*queuev1.Obstacle{
			{
				Reason: queuev1.WaitReason_WAIT_REASON_OVERLAP_RUNNING, Namespaces: []string{"a", "b", "c", "d", "e"}, Since: timestampAgo(time.Hour),
				Jobs: []*queuev1.JobReference{{Kind: queuev1.JobKind_JOB_KIND_BACKUP, Name: "big", Uid: "u-big"}},
			},
			{
				Reason: queuev1.WaitReason_WAIT_REASON_NO_PLACE, Limit: 2,
				Jobs: []*queuev1.JobReference{
					{Kind: queuev1.JobKind_JOB_KIND_BACKUP, Name: "big", Uid: "u-big"}, {Kind: queuev1.JobKind_JOB_KIND_BACKUP, Name: "other", Uid: "u-other"},
				},
			},
		},
	}
}

func (s *service) WatchQueue(_ *queuev1.WatchQueueRequest, stream grpc.ServerStreamingServer[queuev1.WatchQueueResponse]) error {
	s.mu.Lock()
	messages := s.streams[0]
	s.streams = s.streams[1:]
	leaves := len(s.streams) > 0
	s.mu.Unlock()
	for _, m := range messages {
		if err := stream.Send(m); err != nil {
			return err
		}
	}
	if leaves {
		return fmt.Errorf("stopping: %w", errgrpc.ErrUnavailable)
	}
	if s.leaves {
		return fmt.Errorf("no: %w", errgrpc.ErrForbidden)
	}
	<-stream.Context().Done()
	return stream.Context().Err()
}

func timestampAgo(d time.Duration) *timestamppb.Timestamp { return timestamppb.New(time.Now().Add(-d)) }

func sampleEntry(name string, position int32) *queuev1.QueueEntry {
	e := &queuev1.QueueEntry{
		Kind: queuev1.JobKind_JOB_KIND_BACKUP, Namespace: "velero", Name: name, Uid: "u-" + name, Phase: "InProgress", Position: position,
		Namespaces: []string{"a"}, CreateTime: timestampAgo(5 * time.Minute),
	}
	if position > 0 {
		e.Phase, e.Priority, e.EffectivePriority = "Queued", queuev1.Priority_PRIORITY_LOW, queuev1.Priority_PRIORITY_LOW
	}
	return e
}

func TestGet(t *testing.T) {
	c := clitest.New(t)
	restore := sampleEntry("r", 1)
	restore.Kind, restore.Phase, restore.Priority, restore.EffectivePriority = queuev1.JobKind_JOB_KIND_RESTORE, "New", 0, 0
	raised := sampleEntry("late", 3)
	raised.EffectivePriority, raised.Namespaces = queuev1.Priority_PRIORITY_HIGH, []string{"a", "b", "c", "d", "e"}
	s := &service{entries: []*queuev1.QueueEntry{sampleEntry("big", 0), restore, sampleEntry("early", 2), raised}}
	c.Serve(t, s)
	result := c.Run(t.Context(), "", "queue", "get")
	require.Equal(t, 0, result.Code, result.Err)
	require.Equal(t, ""+
		"NAME    KIND      STATUS       POSITION   PRIORITY        NAMESPACES   AGE\n"+
		"big     Backup    InProgress                              a            5m\n"+
		"r       Restore   New          1                          a            5m\n"+
		"early   Backup    Queued       2          low             a            5m\n"+
		"late    Backup    Queued       3          low (as high)   a,b,c,+2     5m\n", result.Out)
	require.Equal(t, 2, s.pages)

	var list queue.List
	require.NoError(t, json.Unmarshal([]byte(c.Run(t.Context(), "", "queue", "get", "-o", "json").Out), &list))
	require.Len(t, list.Entries, 4)
	require.Equal(t, "Backup", list.Entries[3].Kind)
	require.Equal(t, "low", list.Entries[3].Priority)
	require.Equal(t, "high", list.Entries[3].EffectivePriority)
	require.NoError(t, yaml.Unmarshal([]byte(c.Run(t.Context(), "", "queue", "get", "-o", "yaml").Out), &list))
	require.Equal(t, int32(3), list.Entries[3].Position)

	c = clitest.New(t)
	c.Serve(t, &service{})
	require.Contains(t, c.Run(t.Context(), "", "queue", "get").Out, "Nothing runs and nothing waits in namespace velero")
	require.JSONEq(t, `{"entries":[]}`, c.Run(t.Context(), "", "queue", "get", "-o", "json").Out)
}

func TestExplain(t *testing.T) {
	c := clitest.New(t)
	c.Serve(t, &service{entries: []*queuev1.QueueEntry{sampleEntry("big", 0), sampleEntry("small", 1)}})
	result := c.Run(t.Context(), "", "queue", "explain", "small")
	require.Equal(t, 0, result.Code, result.Err)
	for _, line := range []string{
		"Position:                     1", "Waiting for:                  5m", "Why:                          backup big runs on namespace a",
		"  backup big                OverlapRunning      a,b,c,+2     1h", "  backup big,backup other   NoPlace (limit 2)", "  and 7 more",
	} {
		require.Contains(t, result.Out, line)
	}
	var x queue.Explanation
	require.NoError(t, json.Unmarshal([]byte(c.Run(t.Context(), "", "queue", "explain", "small", "-o", "json").Out), &x))
	require.Equal(t, "OverlapRunning", x.Reason)
	require.Equal(t, "small", x.Name)
	require.Equal(t, []string{"a", "b", "c", "d", "e"}, x.Obstacles[0].Namespaces)
	require.Equal(t, queue.Job{Kind: "Backup", Name: "other", UID: "u-other"}, x.Obstacles[1].Jobs[1])

	result = c.Run(t.Context(), "", "queue", "explain", "big")
	require.Equal(t, 0, result.Code, result.Err)
	require.Contains(t, result.Out, "it runs")
	require.NotContains(t, result.Out, "In the way")

	result = c.Run(t.Context(), "", "queue", "explain", "absent")
	require.Equal(t, 1, result.Code)
	require.Equal(t, "holdfast: backup \"absent\": not found\n", result.Err)
}

func TestBadInput(t *testing.T) {
	c := clitest.New(t)
	for _, tc := range []struct {
		want string
		args []string
	}{
		{"accepts 1 arg", []string{"explain"}},
		{"xml", []string{"get", "-o", "xml"}},
		{"--namespace", []string{"get", "-n", "Not/A"}},
		{"--queue-address", []string{"get", "--queue-address", "nowhere"}},
		{"--queue-ca-file to use TLS", []string{"get", "--queue-address", "example.com:7441"}},
		{"--queue-ca-file", []string{"get", "--queue-ca-file", "/does/not/exist"}},
		{"--queue-cert-file, --queue-key-file", []string{"get", "--queue-cert-file", "/does/not/exist"}},
		{"--queue-token-file", []string{"get", "--queue-token-file", "/does/not/exist"}},
		{"no answer from 127.0.0.1:7441", []string{"get"}},
		{"no answer from 127.0.0.1:7441", []string{"explain", "b"}},
		{"no answer from 127.0.0.1:7441", []string{"watch"}},
	} {
		result := c.Run(t.Context(), "", append([]string{"queue"}, tc.args...)...)
		require.Equal(t, 1, result.Code, tc.args)
		require.Contains(t, result.Err, tc.want, tc.args)
	}
	c.Serve(t, &service{entries: []*queuev1.QueueEntry{sampleEntry("b", 1)}})
	for _, args := range [][]string{{"get"}, {"explain", "b"}} {
		result := c.Run(t.Context(), "", append([]string{"queue", "-n", "elsewhere"}, args...)...)
		require.Equal(t, 1, result.Code)
		require.Contains(t, result.Err, "serves namespace velero, not elsewhere")
	}
}

// A service that restarts is waited for, and entries that left meanwhile are printed.
func TestWatch(t *testing.T) {
	streams := func() [][]*queuev1.WatchQueueResponse {
		return [][]*queuev1.WatchQueueResponse{
			{
				{Changed: []*queuev1.QueueEntry{sampleEntry("big", 0), sampleEntry("b1", 1)}},
				{Changed: []*queuev1.QueueEntry{sampleEntry("b2", 2)}, Complete: true},
				{Changed: []*queuev1.QueueEntry{sampleEntry("b2", 1)}, RemovedUids: []string{"u-b1"}, Complete: true},
			},
			{{Changed: []*queuev1.QueueEntry{sampleEntry("b2", 0)}, Complete: true}},
		}
	}
	c := clitest.New(t)
	c.Serve(t, &service{streams: streams(), leaves: true})
	result := c.Run(t.Context(), "", "queue", "watch")
	require.Equal(t, 1, result.Code)
	require.Equal(t, ""+
		"NAME   KIND     STATUS       POSITION   PRIORITY   NAMESPACES   AGE\n"+
		"big    Backup   InProgress                         a            5m\n"+
		"b1     Backup   Queued       1          low        a            5m\n"+
		"b2     Backup   Queued       2          low        a            5m\n"+
		"b2\tBackup\tQueued\t1\tlow\ta\t5m\n"+
		"b1\tleft the queue\n"+
		"b2\tBackup\tInProgress\t\t\ta\t5m\n"+
		"big\tleft the queue\n", result.Out)
	require.Equal(t, "holdfast: stopping: unavailable; trying again\nholdfast: no: forbidden\n", result.Err)

	c.Serve(t, &service{streams: streams(), leaves: true})
	result = c.Run(t.Context(), "", "queue", "watch", "-o", "json")
	decoder := json.NewDecoder(strings.NewReader(result.Out))
	var states []int
	for decoder.More() {
		var list queue.List
		require.NoError(t, decoder.Decode(&list))
		states = append(states, len(list.Entries))
	}
	require.Equal(t, []int{3, 2, 1}, states)

	c.Live = true
	c.Serve(t, &service{streams: streams(), leaves: true})
	result = c.Run(t.Context(), "", "queue", "watch")
	require.Equal(t, 3, strings.Count(result.Out, "\x1b[H\x1b[2J"))
	require.Equal(t, 3, strings.Count(result.Out, "POSITION"))
}

func TestWatchEndsInPeaceWhenInterrupted(t *testing.T) {
	c := clitest.New(t)
	c.Serve(t, &service{streams: [][]*queuev1.WatchQueueResponse{{{Changed: []*queuev1.QueueEntry{sampleEntry("big", 0)}, Complete: true}}}})
	soon, stop := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer stop()
	// An interrupt is no deadline, which the server would know too and could end the stream by
	// first.
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	context.AfterFunc(soon, interrupt)
	result := c.Run(ctx, "", "queue", "watch")
	require.Equal(t, 0, result.Code, result.Err)
	require.Empty(t, result.Err)
}
