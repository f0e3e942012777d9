package server_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"iter"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
	"github.com/holdfast-io/holdfast/pkg/service/grpcserver"
	operationv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/operation/v1"
	"github.com/holdfast-io/holdfast/services/async-operation-monitor/internal/server"
)

// bed is the service over a real connection, a bucket, and an API server with the backup "b", which
// waits for operations.
type bed struct {
	*testing.T
	api    client.Client
	store  *memstore.Store
	log    *operation.Log
	calls  operationv1.OperationMonitorServiceClient
	memory *memory
}

// memory notes which jobs are to be polled, and the tokens of callers that come with it.
type memory struct {
	mu            sync.Mutex
	woken, tokens []string
}

func (*memory) States(string, string, types.UID) []operation.State { return nil }

func (m *memory) Wake(ctx context.Context, kind, name string, uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.woken = append(m.woken, fmt.Sprint(kind, " ", name, " ", uid))
	m.tokens = append(m.tokens, metadata.ValueFromIncomingContext(ctx, "authorization")...)
}

type stores struct{ objectstore.Store }

func (s stores) OpenName(context.Context, string) (objectstore.Store, error) { return s.Store, nil }

// logging is actions of both protocols.
type logging struct{ action.Operations }

func (logging) Logs(_ context.Context, op action.Operation, job []byte, since time.Time, follow bool) iter.Seq2[action.LogLine, error] {
	return func(yield func(action.LogLine, error) bool) {
		switch {
		case op.Kind == "BackupItemActionV2":
			yield(action.LogLine{}, action.ErrNoLogs)
		case op.ID == "lost":
			yield(action.LogLine{}, action.ErrUnknownOperation)
		case yield(action.LogLine{Time: since, Level: "info", Message: "copying", Fields: map[string]string{"follow": fmt.Sprint(follow)}}, nil):
			yield(action.LogLine{Level: "error", Message: string(job[:7])}, nil)
		}
	}
}

var created = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func newOperation(kind, name, id string) operation.Operation {
	return operation.Operation{Action: name, Kind: kind, ID: id, Created: created, Item: operation.Resource{Resource: "pods", Namespace: "n", Name: id}}
}

func newBed(t *testing.T, ops ...operation.Operation) *bed {
	t.Helper()
	backup := &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "b", UID: "u"}, Spec: velerov1.BackupSpec{StorageLocation: "main"}}
	backup.Status.Phase = velerov1.BackupPhaseWaitingForPluginOperations
	collecting := backup.DeepCopy()
	collecting.Name, collecting.UID, collecting.Status.Phase = "collecting", "c", velerov1.BackupPhaseInProgress
	b := &bed{T: t, store: memstore.New(), memory: &memory{}, api: fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(backup, collecting).Build()}
	job := operation.Job{Kind: operation.KindBackup, Name: "b", UID: "u"}
	_, err := operation.Seal(t.Context(), b.store, operation.List{Job: job, Epoch: 1, Operations: ops})
	require.NoError(t, err)
	b.log, err = operation.Open(t.Context(), b.store, job)
	require.NoError(t, err)
	b.startServer(&server.Server{Clock: clock.RealClock{}, Operations: &server.Source{
		Reader: b.api, Namespace: "velero", Stores: stores{b.store}, Memory: b.memory, Clock: clock.RealClock{}, Actions: &operation.Actions{Shared: logging{}},
	}})
	return b
}

func (b *bed) startServer(s *server.Server) {
	b.Helper()
	g, err := grpcserver.New(grpcserver.Config{
		Log: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(), Tracer: noop.NewTracerProvider(), Propagator: propagation.TraceContext{},
	})
	require.NoError(b, err)
	operationv1.RegisterOperationMonitorServiceServer(g, s)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	ended := make(chan error)
	go func() { ended <- g.Serve(listener) }()
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(b, err)
	b.Cleanup(func() {
		require.NoError(b, conn.Close())
		g.Stop(context.Background())
		require.NoError(b, <-ended)
	})
	b.calls = operationv1.NewOperationMonitorServiceClient(conn)
}

// editBackup changes the backup as a service would.
func (b *bed) editBackup(change func(*velerov1.Backup)) {
	b.Helper()
	backup := &velerov1.Backup{}
	require.NoError(b, b.api.Get(b.Context(), client.ObjectKey{Namespace: "velero", Name: "b"}, backup))
	change(backup)
	require.NoError(b, b.api.Update(b.Context(), backup))
}

func (b *bed) cancelReasons() (reasons []string) {
	b.Helper()
	require.NoError(b, b.log.Refresh(b.Context()))
	for _, s := range b.log.States() {
		if s.Request != nil {
			reasons = append(reasons, s.Request.Reason)
		}
	}
	return reasons
}

func requireRefused(t *testing.T, err error, code codes.Code, reason, text string) {
	t.Helper()
	require.Equal(t, code, status.Code(err), err)
	require.Equal(t, reason, errgrpc.Reason(err))
	require.ErrorContains(t, err, text)
}

func cancelOne(id, name string) *operationv1.CancelOperationRequest {
	return &operationv1.CancelOperationRequest{
		Owner:       &operationv1.CancelOperationRequest_Backup{Backup: "b"},
		Target:      &operationv1.CancelOperationRequest_Operation{Operation: &operationv1.OperationName{Id: id, Action: name}},
		RequestedBy: "ann",
	}
}

func cancelAll(backup string) *operationv1.CancelOperationRequest {
	return &operationv1.CancelOperationRequest{Owner: &operationv1.CancelOperationRequest_Backup{Backup: backup}, Target: &operationv1.CancelOperationRequest_All{All: true}}
}

func TestARequestToCancelIsRecordedOnce(t *testing.T) {
	b := newBed(t, newOperation("AsyncBackupItemAction", "x.io/a", "1"), newOperation("AsyncBackupItemAction", "x.io/a", "2"), newOperation("AsyncBackupItemAction", "x.io/a", "3"))
	require.NoError(t, b.log.Append(t.Context(), operation.Event{Operation: 2, Time: created, End: &operation.End{}}))
	for want := range 2 {
		answer, err := b.calls.CancelOperation(metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer x"), cancelOne("1", ""))
		require.NoError(t, err)
		require.EqualValues(t, 1-want, answer.GetRequested())
		require.Len(t, answer.GetOperations(), 1)
		require.Equal(t, []string{"cancelled by ann"}, b.cancelReasons())
	}
	require.Equal(t, []string{"Backup b u"}, b.memory.woken, "it is polled at once")
	require.Empty(t, b.memory.tokens, "by the service, whatever the caller may ask of others")

	answer, err := b.calls.CancelOperation(t.Context(), cancelAll("b"))
	require.NoError(t, err)
	require.EqualValues(t, 1, answer.GetRequested())
	require.Len(t, answer.GetOperations(), 2, "what has ended is not meant")
	require.Equal(t, []string{"cancelled by ann", "cancelled"}, b.cancelReasons())

	answer, err = b.calls.CancelOperation(t.Context(), cancelOne("3", "x.io/a"))
	require.NoError(t, err)
	require.Zero(t, answer.GetRequested())
	require.Equal(t, operationv1.OperationPhase_OPERATION_PHASE_COMPLETED, answer.GetOperations()[0].GetPhase(), "it stays as it is")
}

func TestWhatCannotBeCancelled(t *testing.T) {
	b := newBed(t, newOperation("AsyncBackupItemAction", "x.io/a", "1"), newOperation("AsyncBackupItemAction", "x.io/b", "1"))
	for name, tc := range map[string]struct {
		req    *operationv1.CancelOperationRequest
		code   codes.Code
		reason string
		text   string
	}{
		"an operation that is not there": {cancelOne("7", ""), codes.NotFound, "NOT_FOUND", `operation "7" of backup "b"`},
		"one of another action":          {cancelOne("1", "x.io/c"), codes.NotFound, "NOT_FOUND", "of action x.io/c"},
		"one of several":                 {cancelOne("1", ""), codes.InvalidArgument, "INVALID_FIELD", "operation.action: "},
		"no target":                      {&operationv1.CancelOperationRequest{Owner: cancelAll("b").GetOwner()}, codes.InvalidArgument, "INVALID_FIELD", "target"},
		"no owner":                       {&operationv1.CancelOperationRequest{Target: cancelAll("b").GetTarget()}, codes.InvalidArgument, "INVALID_FIELD", "owner"},
		"an empty name":                  {cancelOne("", ""), codes.InvalidArgument, "INVALID_FIELD", "operation.id: "},
		"not all":                        {&operationv1.CancelOperationRequest{Owner: cancelAll("b").GetOwner(), Target: &operationv1.CancelOperationRequest_All{}}, codes.InvalidArgument, "INVALID_FIELD", "all: "},
		"a long name": {
			&operationv1.CancelOperationRequest{Owner: cancelAll("b").GetOwner(), Target: cancelAll("b").GetTarget(), RequestedBy: strings.Repeat("x", 257)},
			codes.InvalidArgument, "INVALID_FIELD", "requested_by: ",
		},
		"a backup that is not there":   {cancelAll("absent"), codes.NotFound, "NOT_FOUND", `backup "absent"`},
		"a backup that still collects": {cancelAll("collecting"), codes.FailedPrecondition, "OPERATIONS_NOT_COLLECTED", "cancel the backup"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := b.calls.CancelOperation(t.Context(), tc.req)
			requireRefused(t, err, tc.code, tc.reason, tc.text)
		})
	}
	require.Empty(t, b.cancelReasons())
	require.Empty(t, b.memory.woken)
}

// Velero's server began these, and keeps no records: an answer without an error would be a promise.
func TestOperationsOfAnotherServerAreNotCancelled(t *testing.T) {
	b := newBed(t)
	for _, key := range b.store.Keys() {
		require.NoError(t, b.store.Delete(t.Context(), key))
	}
	var file bytes.Buffer
	ops := []operation.Operation{newOperation("AsyncBackupItemAction", "x.io/a", "1"), newOperation("AsyncBackupItemAction", "x.io/a", "2")}
	states := []operation.State{{Phase: operation.InProgress}, {Phase: operation.Completed}}
	require.NoError(t, operation.EncodeFile(&file, operation.Job{Kind: operation.KindBackup, Name: "b", UID: "u"}, ops, states))
	var zipped bytes.Buffer
	zip := gzip.NewWriter(&zipped)
	_, err := zip.Write(file.Bytes())
	require.NoError(t, err)
	require.NoError(t, zip.Close())
	b.store.Set(layout.BackupItemOperations("b"), zipped.Bytes())
	for _, req := range []*operationv1.CancelOperationRequest{cancelOne("1", ""), cancelAll("b")} {
		_, err := b.calls.CancelOperation(t.Context(), req)
		requireRefused(t, err, codes.FailedPrecondition, "OPERATIONS_NOT_RECORDED", "another server")
	}
	answer, err := b.calls.CancelOperation(t.Context(), cancelOne("2", ""))
	require.NoError(t, err)
	require.Len(t, answer.GetOperations(), 1, "what has ended stays as it is")
	require.Empty(t, b.memory.woken)
}

// Where others always record first, the caller is to try again.
func TestARequestThatFindsNoTurnIsAConflict(t *testing.T) {
	b := newBed(t, newOperation("AsyncBackupItemAction", "x.io/a", "1"))
	b.store.Inject(func(op memstore.Op, key string) error {
		if op == memstore.OpCreate {
			return objectstore.ErrExists
		}
		return nil
	})
	_, err := b.calls.CancelOperation(t.Context(), cancelOne("1", ""))
	requireRefused(t, err, codes.Aborted, "CONFLICT", "record the request")
}

// Replicas that record at the same time do not lose a request.
func TestRequestsBesideOtherRecords(t *testing.T) {
	var ops []operation.Operation
	for i := range 8 {
		ops = append(ops, newOperation("AsyncBackupItemAction", "x.io/a", fmt.Sprint(i)))
	}
	b := newBed(t, ops...)
	var all sync.WaitGroup
	for i := range ops {
		all.Go(func() {
			answer, err := b.calls.CancelOperation(t.Context(), cancelOne(fmt.Sprint(i), ""))
			require.NoError(t, err)
			require.EqualValues(t, 1, answer.GetRequested())
		})
	}
	all.Wait()
	require.Len(t, b.cancelReasons(), len(ops))
}

func TestAWatchSendsTheStateThenChangesThenEnds(t *testing.T) {
	b := newBed(t, newOperation("AsyncBackupItemAction", "x.io/a", "1"), newOperation("AsyncBackupItemAction", "x.io/a", "2"))
	stream, err := b.calls.WatchOperations(t.Context(), &operationv1.WatchOperationsRequest{Owner: &operationv1.WatchOperationsRequest_Backup{Backup: "b"}})
	require.NoError(t, err)
	first, err := stream.Recv()
	require.NoError(t, err)
	require.True(t, first.GetComplete())
	require.Len(t, first.GetChanged(), 2)
	require.Equal(t, "WaitingForPluginOperations", first.GetJobPhase())

	require.NoError(t, b.log.Append(t.Context(), operation.Event{Operation: 1, Time: created, End: &operation.End{Error: "no"}}))
	b.editBackup(func(o *velerov1.Backup) {
		o.Status.Phase = velerov1.BackupPhaseWaitingForPluginOperationsPartiallyFailed
	})
	next, err := stream.Recv()
	require.NoError(t, err)
	require.Len(t, next.GetChanged(), 1, "what did not change is not sent again")
	require.Equal(t, "no", next.GetChanged()[0].GetError())

	b.editBackup(func(o *velerov1.Backup) { o.Status.Phase = velerov1.BackupPhasePartiallyFailed })
	last, err := stream.Recv()
	require.NoError(t, err)
	require.Equal(t, "PartiallyFailed", last.GetJobPhase())
	_, err = stream.Recv()
	require.EqualError(t, err, "EOF")

	stream, err = b.calls.WatchOperations(t.Context(), &operationv1.WatchOperationsRequest{Owner: &operationv1.WatchOperationsRequest_Restore{Restore: "absent"}})
	require.NoError(t, err)
	_, err = stream.Recv()
	requireRefused(t, err, codes.NotFound, "NOT_FOUND", `restore "absent"`)
}

// A state that is too large for one message comes in several, of which the last is marked.
func TestALargeStateComesInSeveralMessages(t *testing.T) {
	var ops []operation.Operation
	for i := range 1200 {
		ops = append(ops, newOperation("AsyncBackupItemAction", "x.io/a", fmt.Sprint(i)))
	}
	b := newBed(t, ops...)
	stream, err := b.calls.WatchOperations(t.Context(), &operationv1.WatchOperationsRequest{Owner: &operationv1.WatchOperationsRequest_Backup{Backup: "b"}})
	require.NoError(t, err)
	total, messages := 0, 0
	for complete := false; !complete; messages++ {
		m, err := stream.Recv()
		require.NoError(t, err)
		total += len(m.GetChanged())
		complete = m.GetComplete()
	}
	require.Equal(t, []int{1200, 3}, []int{total, messages})
}

func TestLogsOfAnOperation(t *testing.T) {
	b := newBed(t, newOperation("AsyncBackupItemAction", "x.io/a", "1"), newOperation("BackupItemActionV2", "x.io/v", "2"), newOperation("AsyncBackupItemAction", "x.io/a", "lost"))
	ask := func(id string) (lines []*operationv1.StreamOperationLogsResponse, err error) {
		stream, err := b.calls.StreamOperationLogs(t.Context(), &operationv1.StreamOperationLogsRequest{
			Owner: &operationv1.StreamOperationLogsRequest_Backup{Backup: "b"}, Operation: &operationv1.OperationName{Id: id}, Follow: true,
		})
		require.NoError(t, err)
		for {
			line, err := stream.Recv()
			if err != nil {
				return lines, err
			}
			lines = append(lines, line)
		}
	}
	lines, err := ask("1")
	require.EqualError(t, err, "EOF")
	require.Len(t, lines, 2)
	require.Equal(t, map[string]string{"follow": "true"}, lines[0].GetFields())
	require.Nil(t, lines[1].GetTime())
	require.Equal(t, `{"kind"`, lines[1].GetMessage(), "the action gets the backup with its kind")

	_, err = ask("2")
	requireRefused(t, err, codes.Unimplemented, "NO_OPERATION_LOGS", "has no logs")
	_, err = ask("lost")
	requireRefused(t, err, codes.NotFound, "NOT_FOUND", "no such operation")
	_, err = ask("7")
	requireRefused(t, err, codes.NotFound, "NOT_FOUND", `operation "7" of backup "b"`)
	_, err = ask("")
	requireRefused(t, err, codes.InvalidArgument, "INVALID_FIELD", "operation.id: ")
}
