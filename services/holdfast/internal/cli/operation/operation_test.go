package operation_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	operationv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/operation/v1"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/clitest"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/operation"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// service is an async-operation-monitor with the operations of backup "b".
type service struct {
	operationv1.UnimplementedOperationMonitorServiceServer
	mu         sync.Mutex
	operations []*operationv1.Operation
	streams    [][]*operationv1.WatchOperationsResponse // what each watch sends; all but the last break
	cancelled  []*operationv1.CancelOperationRequest
	logs       []*operationv1.StreamOperationLogsRequest
}

func (s *service) checkBackup(backup string) error {
	if backup != "b" {
		return fmt.Errorf("backup %q: %w", backup, errgrpc.ErrNotFound)
	}
	return nil
}

// ListOperations gives two operations a page.
func (s *service) ListOperations(_ context.Context, req *operationv1.ListOperationsRequest) (*operationv1.ListOperationsResponse, error) {
	if err := s.checkBackup(req.GetBackup()); err != nil {
		return nil, err
	}
	first := len(req.GetPageToken())
	last := min(first+2, len(s.operations))
	resp := &operationv1.ListOperationsResponse{Operations: s.operations[first:last]}
	if last < len(s.operations) {
		resp.NextPageToken = strings.Repeat("x", last)
	}
	return resp, nil
}

func (s *service) WatchOperations(req *operationv1.WatchOperationsRequest, stream grpc.ServerStreamingServer[operationv1.WatchOperationsResponse]) error {
	if err := s.checkBackup(req.GetBackup()); err != nil {
		return err
	}
	s.mu.Lock()
	messages := s.streams[0]
	s.streams = s.streams[1:]
	breaks := len(s.streams) > 0
	s.mu.Unlock()
	for _, m := range messages {
		if err := stream.Send(m); err != nil {
			return err
		}
	}
	if breaks {
		return fmt.Errorf("stopping: %w", errgrpc.ErrUnavailable)
	}
	return nil
}

func (s *service) CancelOperation(_ context.Context, req *operationv1.CancelOperationRequest) (*operationv1.CancelOperationResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cancelled = append(s.cancelled, req)
	if req.GetRestore() != "" {
		return &operationv1.CancelOperationResponse{}, nil
	}
	return &operationv1.CancelOperationResponse{Operations: s.operations[:2], Requested: 1}, nil
}

func (s *service) StreamOperationLogs(req *operationv1.StreamOperationLogsRequest, stream grpc.ServerStreamingServer[operationv1.StreamOperationLogsResponse]) error {
	s.mu.Lock()
	s.logs = append(s.logs, req)
	s.mu.Unlock()
	if req.GetOperation().GetId() == "velero" {
		return errgrpc.WithReason(fmt.Errorf("no logs: %w", errgrpc.ErrUnsupported), "NO_OPERATION_LOGS", nil)
	}
	for i := range 2 {
		line := &operationv1.StreamOperationLogsResponse{Level: "info", Message: fmt.Sprint("step ", i), Fields: map[string]string{"file": "a b", "at": "x"}}
		if i == 0 {
			line.Time = timestamppb.New(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
		}
		if err := stream.Send(line); err != nil {
			return err
		}
	}
	return nil
}

func newOperation(id string, change func(*operationv1.Operation)) *operationv1.Operation {
	o := &operationv1.Operation{
		Id: id, Action: "x.io/mover", GroupResource: "persistentvolumeclaims", Namespace: "n", Name: "data-" + id,
		Phase: operationv1.OperationPhase_OPERATION_PHASE_IN_PROGRESS, Completed: 5, Total: 10, Units: "Bytes", Description: "copying",
		CreateTime: timestamppb.New(time.Now().Add(-time.Hour)),
	}
	if change != nil {
		change(o)
	}
	return o
}

func markFailed(o *operationv1.Operation) {
	o.Phase, o.Error = operationv1.OperationPhase_OPERATION_PHASE_FAILED, "disk full"
}

func newServiceBed(t *testing.T) (*clitest.Cluster, *service) {
	t.Helper()
	s := &service{operations: []*operationv1.Operation{newOperation("one", nil), newOperation("two", markFailed), newOperation("three", func(o *operationv1.Operation) { o.Total, o.Completed = 0, 0 })}}
	c := clitest.New(t)
	c.ServeOperations(t, s)
	return c, s
}

func TestListShowsEveryPage(t *testing.T) {
	c, _ := newServiceBed(t)
	r := c.Run(t.Context(), "", "operation", "list", "backup/b")
	require.Zero(t, r.Code, r.Err)
	rows := strings.Split(strings.TrimSpace(r.Out), "\n")
	require.Len(t, rows, 4)
	require.Regexp(t, `^one\s+x.io/mover\s+persistentvolumeclaims n/data-one\s+InProgress\s+\[##########\.{10}\] 50% 5 of 10 Bytes\s+1h\s+copying$`, rows[1])
	require.Regexp(t, `two.*Failed.*disk full$`, rows[2])
	require.NotContains(t, rows[3], "[", "no bar while the total is not known")

	r = c.Run(t.Context(), "", "operation", "list", "backup/b", "-o", "json")
	var list operation.List
	require.NoError(t, json.Unmarshal([]byte(r.Out), &list))
	require.Len(t, list.Operations, 3)
	require.Equal(t, "disk full", list.Operations[1].Error)
}

func TestWhatIsWrongIsNamed(t *testing.T) {
	c, s := newServiceBed(t)
	for want, args := range map[string][]string{
		`"b" is not of the form backup/NAME or restore/NAME`:       {"list", "b"},
		`"pod/b" is not of the form`:                               {"watch", "pod/b"},
		`"backup/" is not of the form`:                             {"logs", "backup/", "1"},
		`backup "c": not found`:                                    {"list", "backup/c"},
		`backup "d": not found`:                                    {"watch", "backup/d"},
		"give either the ID of an operation or --all":              {"cancel", "backup/b"},
		"give either the ID of an operation or --all ":             {"cancel", "backup/b", "one", "--all"},
		"--since: must not be negative":                            {"logs", "backup/b", "one", "--since=-1s"},
		"no logs":                                                  {"logs", "backup/b", "velero"},
		"--operations-address: ":                                   {"list", "backup/b", "--operations-address", "nowhere"},
		"--operations-address: 10.0.0.1 is not this machine: give": {"list", "backup/b", "--operations-address", "10.0.0.1:7"},
	} {
		r := c.Run(t.Context(), "", append([]string{"operation"}, args...)...)
		require.Equal(t, 1, r.Code, args)
		require.Contains(t, r.Err, strings.TrimSpace(want))
	}
	require.Empty(t, s.cancelled)
	r := clitest.New(t).Run(t.Context(), "", "operation", "list", "backup/b")
	require.Contains(t, r.Err, "the port of async-operation-monitor forwarded? --operations-address says where it is")
}

func watchMessages() [][]*operationv1.WatchOperationsResponse {
	half := newOperation("one", func(o *operationv1.Operation) { o.Completed = 7 })
	return [][]*operationv1.WatchOperationsResponse{
		{
			{Changed: []*operationv1.Operation{newOperation("one", nil)}, JobPhase: "WaitingForPluginOperations"},
			{Changed: []*operationv1.Operation{newOperation("two", nil)}, JobPhase: "WaitingForPluginOperations", Complete: true},
		},
		{
			{Changed: []*operationv1.Operation{half, newOperation("two", markFailed)}, JobPhase: "WaitingForPluginOperationsPartiallyFailed", Complete: true},
			{JobPhase: "PartiallyFailed", Complete: true},
		},
	}
}

// A connection that is lost is made again, and what is known is not printed twice.
func TestWatchPrintsWhatChanges(t *testing.T) {
	c, s := newServiceBed(t)
	s.streams = watchMessages()
	s.streams[1] = append([]*operationv1.WatchOperationsResponse{proto.CloneOf(s.streams[0][0])}, s.streams[1]...)
	s.streams[1][0].Changed = []*operationv1.Operation{s.streams[0][0].GetChanged()[0]}
	r := c.Run(t.Context(), "", "operation", "watch", "backup/b")
	require.Zero(t, r.Code, r.Err)
	require.Contains(t, r.Err, "trying again")
	var first []string
	for line := range strings.Lines(r.Out) {
		first = append(first, strings.Join(strings.Fields(line)[:2], " "))
	}
	require.Equal(t, []string{
		`Backup "b"`, "one x.io/mover", "two x.io/mover", `Backup "b"`, "one x.io/mover", "two x.io/mover", `Backup "b"`,
	}, first)
	require.NotContains(t, r.Out, "\x1b")
}

func TestWatchDrawsBarsOnATerminal(t *testing.T) {
	c, s := newServiceBed(t)
	c.Live = true
	s.streams = watchMessages()
	r := c.Run(t.Context(), "", "operation", "watch", "backup/b")
	require.Zero(t, r.Code, r.Err)
	screens := strings.Split(r.Out, "\x1b[H\x1b[2J")
	require.Len(t, screens, 4)
	require.Contains(t, screens[1], "[##########..........] 50%")
	require.Contains(t, screens[2], "[##############......] 70%")
	require.Contains(t, screens[3], `Backup "b": PartiallyFailed, 0 of 2 operations completed, 1 failed`)
}

func TestCancelNamesWhatItAsked(t *testing.T) {
	c, s := newServiceBed(t)
	r := c.Run(t.Context(), "", "operation", "cancel", "backup/b", "one", "--action", "x.io/mover")
	require.Zero(t, r.Code, r.Err)
	require.Equal(t, "Operation \"one\" of action x.io/mover was asked to end.\nOperation \"two\" of action x.io/mover has ended: Failed\n", r.Out)
	require.Equal(t, "one", s.cancelled[0].GetOperation().GetId())
	require.Equal(t, "x.io/mover", s.cancelled[0].GetOperation().GetAction())

	r = c.Run(t.Context(), "", "operation", "cancel", "restore/r", "--all")
	require.Zero(t, r.Code, r.Err)
	require.Equal(t, "No operation is left to cancel.\n", r.Out)
	require.Equal(t, "r", s.cancelled[1].GetRestore())
	require.True(t, s.cancelled[1].GetAll())
}

func TestLogsAreLines(t *testing.T) {
	c, s := newServiceBed(t)
	r := c.Run(t.Context(), "", "operation", "logs", "restore/r", "one", "-f", "--since", "5m")
	require.Zero(t, r.Code, r.Err)
	require.Equal(t, "2026-01-02T03:04:05Z info step 0 at=\"x\" file=\"a b\"\ninfo step 1 at=\"x\" file=\"a b\"\n", r.Out)
	require.True(t, s.logs[0].GetFollow())
	require.WithinDuration(t, time.Now().Add(-5*time.Minute), s.logs[0].GetSince().AsTime(), time.Minute)
}
