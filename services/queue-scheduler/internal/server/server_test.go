package server_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace/noop"
	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/job/jobtest"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
	"github.com/holdfast-io/holdfast/pkg/job/validate"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/objectstore/location"
	queuev1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/queue/v1"
	"github.com/holdfast-io/holdfast/services/queue-scheduler/internal/queue"
	"github.com/holdfast-io/holdfast/services/queue-scheduler/internal/server"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newServer(objects ...client.Object) (*server.Server, client.Client) {
	c := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(objects...).Build()
	q := newQueue(c)
	return &server.Server{Reader: c, Client: c, Namespace: "velero", Queue: q, Feed: server.NewFeed(q, clock.RealClock{})}, c
}

// newQueue returns the scheduler of a replica that makes no passes.
func newQueue(c client.Client) *queue.Scheduler {
	return queue.New(queue.Config{
		Reader: c, Client: c, Namespace: "velero", Ledger: ledger.New(c, c, "velero"),
		Limits:    func(context.Context) (ledger.Limits, error) { return ledger.Limits{Backups: 2}, nil },
		Validator: &validate.Validator{Reader: c, Namespace: "velero", Locations: location.New(c, "velero"), Clock: clock.RealClock{}}, Tracer: noop.NewTracerProvider(), Clock: clock.RealClock{},
	})
}

func newSpec(t *testing.T, fields map[string]any) *structpb.Struct {
	t.Helper()
	s, err := structpb.NewStruct(fields)
	require.NoError(t, err)
	return s
}

func TestSubmitCreatesTheObject(t *testing.T) {
	s, c := newServer()
	resp, err := s.SubmitBackup(t.Context(), &queuev1.SubmitBackupRequest{
		Name: "daily", Labels: map[string]string{"l": "1"}, Annotations: map[string]string{"a": "2"},
		Spec: newSpec(t, map[string]any{"includedNamespaces": []any{"shop"}, "ttl": "24h"}),
	})
	require.NoError(t, err)
	require.Equal(t, "velero", resp.GetNamespace())
	b := &velerov1.Backup{}
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: "velero", Name: "daily"}, b))
	require.Equal(t, 24*time.Hour, b.Spec.TTL.Duration)
	require.Equal(t, []string{"shop"}, b.Spec.IncludedNamespaces)
	require.Equal(t, "1", b.Labels["l"])
	require.Equal(t, "2", b.Annotations["a"])

	_, err = s.SubmitBackup(t.Context(), &queuev1.SubmitBackupRequest{Name: "daily"})
	status, _ := errgrpc.Status(err)
	require.Equal(t, codes.AlreadyExists, status.Code())

	_, err = s.SubmitRestore(t.Context(), &queuev1.SubmitRestoreRequest{Name: "r", Spec: newSpec(t, map[string]any{"backupName": "daily"})})
	require.NoError(t, err)
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: "velero", Name: "r"}, &velerov1.Restore{}))
}

func TestBadSpecsNameTheField(t *testing.T) {
	s, _ := newServer()
	for field, fields := range map[string]map[string]any{
		"spec.includeNamespaces":              {"includeNamespaces": []any{"a"}},
		"spec.includedNamespaces":             {"includedNamespaces": "a"},
		"spec.hooks.resources[0].pre[0].exec": {"hooks": map[string]any{"resources": []any{map[string]any{"name": "h", "pre": []any{map[string]any{}}}}}},
		"spec.orderedResources":               {"orderedResources": map[string]any{"pods": "a/b"}},
		"spec.ttl":                            {"ttl": "soon"}, // a type that decodes itself
		"spec.labelSelector":                  {"labelSelector": map[string]any{"matchLabels": map[string]any{"a": "not a value"}}},
	} {
		_, err := s.SubmitBackup(t.Context(), &queuev1.SubmitBackupRequest{Name: "b", Spec: newSpec(t, fields)})
		require.Contains(t, fieldViolations(t, err), field)
	}
	_, err := s.SubmitRestore(t.Context(), &queuev1.SubmitRestoreRequest{Name: "r", Spec: newSpec(t, map[string]any{
		"backupName": "b", "restoreStatus": map[string]any{}, "namespaceMapings": map[string]any{},
	})})
	require.Contains(t, fieldViolations(t, err), "spec.namespaceMapings")
}

func fieldViolations(t *testing.T, err error) []string {
	t.Helper()
	require.Error(t, err)
	status, _ := errgrpc.Status(err)
	require.Equal(t, codes.InvalidArgument, status.Code(), err)
	var fields []string
	for _, detail := range status.Details() {
		if bad, ok := detail.(*errdetails.BadRequest); ok {
			for _, v := range bad.GetFieldViolations() {
				fields = append(fields, v.GetField())
			}
		}
	}
	return fields
}

func newJobBackup(name string, phase velerov1.BackupPhase, sequence string, age int) *velerov1.Backup {
	b := &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{
		Namespace: "velero", Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(time.Unix(int64(1000-age), 0)),
	}}
	if sequence != "" {
		b.Annotations = map[string]string{"holdfast.io/queue-sequence": sequence}
	}
	b.Status.Phase = phase
	return b
}

func TestListQueueInOrderAndPages(t *testing.T) {
	r := &velerov1.Restore{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "r", UID: "r"}}
	s, c := newServer(newJobBackup("done", velerov1.BackupPhaseCompleted, "1", 9), newJobBackup("running", velerov1.BackupPhaseInProgress, "2", 8),
		newJobBackup("q10", velerov1.BackupPhaseQueued, "10", 7), newJobBackup("q9", velerov1.BackupPhaseQueued, "9", 1), newJobBackup("new", "", "", 5), r)
	require.NoError(t, jobtest.Admit(t.Context(), ledger.New(c, c, "velero"), ledger.Entry{
		UID: "running", Kind: ledger.KindBackup, Namespace: "velero", Name: "running", Namespaces: []string{"a"}, Since: time.Unix(1, 0),
	}, ledger.Limits{}))
	var names []string
	var positions []int32
	token := ""
	for {
		resp, err := s.ListQueue(t.Context(), &queuev1.ListQueueRequest{PageSize: 2, PageToken: token})
		require.NoError(t, err)
		for _, e := range resp.GetEntries() {
			names, positions = append(names, e.GetName()), append(positions, e.GetPosition())
		}
		if token = resp.GetNextPageToken(); token == "" {
			break
		}
	}
	require.Equal(t, []string{"running", "r", "q9", "q10", "new"}, names)
	require.Equal(t, []int32{0, 1, 2, 3, 4}, positions)

	resp, err := s.ListQueue(t.Context(), &queuev1.ListQueueRequest{})
	require.NoError(t, err)
	require.Equal(t, []string{"a"}, resp.GetEntries()[0].GetNamespaces())
	require.EqualValues(t, 1, resp.GetEntries()[0].GetAdmitTime().GetSeconds())
	require.Equal(t, "New", resp.GetEntries()[4].GetPhase())
	_, err = s.ListQueue(t.Context(), &queuev1.ListQueueRequest{PageToken: "junk"})
	require.Contains(t, fieldViolations(t, err), "page_token")
	require.Equal(t, queuev1.Priority_PRIORITY_NORMAL, resp.GetEntries()[2].GetPriority())
	require.Equal(t, queuev1.Priority_PRIORITY_UNSPECIFIED, resp.GetEntries()[0].GetPriority(), "it does not wait")
	require.Equal(t, []string{"*"}, resp.GetEntries()[2].GetNamespaces())
}

// Pages hold less than was asked for where clients could not read the message.
func TestPagesAreOfASizeThatClientsAccept(t *testing.T) {
	var objects []client.Object
	for i := range 30 {
		b := newJobBackup(fmt.Sprintf("b%02d", i), velerov1.BackupPhaseQueued, fmt.Sprint(i+1), 1)
		for n := range 2000 {
			b.Spec.IncludedNamespaces = append(b.Spec.IncludedNamespaces, fmt.Sprintf("a-namespace-with-a-rather-long-name-%04d-%02d", n, i))
		}
		objects = append(objects, b)
	}
	s, _ := newServer(objects...)
	pages, token := 0, ""
	var names []string
	for {
		resp, err := s.ListQueue(t.Context(), &queuev1.ListQueueRequest{PageSize: 1000, PageToken: token})
		require.NoError(t, err)
		require.Less(t, proto.Size(resp), 2<<20)
		for _, e := range resp.GetEntries() {
			names = append(names, e.GetName())
		}
		pages++
		if token = resp.GetNextPageToken(); token == "" {
			break
		}
	}
	require.Greater(t, pages, 2)
	require.Len(t, names, 30)
	require.True(t, slices.IsSorted(names))
}
