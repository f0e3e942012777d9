package server

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"

	"google.golang.org/protobuf/types/known/timestamppb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/grpcerr"
	"github.com/holdfast-io/holdfast/pkg/ledger"
	queuev1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/queue/v1"
)

const defaultPage = 100

// ListQueue implements queue.v1.QueueService.
func (s *Server) ListQueue(ctx context.Context, req *queuev1.ListQueueRequest) (*queuev1.ListQueueResponse, error) {
	first, err := offset(req.GetPageToken())
	if err != nil {
		return nil, err
	}
	entries, err := s.entries(ctx)
	if err != nil {
		return nil, err
	}
	first = min(first, len(entries))
	last := min(first+cmp.Or(int(req.GetPageSize()), defaultPage), len(entries))
	resp := &queuev1.ListQueueResponse{Entries: entries[first:last]}
	if last < len(entries) {
		resp.NextPageToken = strconv.Itoa(last)
	}
	return resp, nil
}

// offset reads a page token: how many entries the pages before held.
func offset(token string) (int, error) {
	if token == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(token)
	if err != nil || n < 0 {
		return 0, grpcerr.Field("page_token", "not a token of this method")
	}
	return n, nil
}

// entries is the whole queue: what is admitted, then restores, then backups in
// their order, each with its place among those that wait.
func (s *Server) entries(ctx context.Context) ([]*queuev1.QueueEntry, error) {
	admitted, err := s.Ledger.List(ctx)
	if err != nil {
		return nil, err
	}
	entries := map[types.UID]ledger.Entry{}
	for _, e := range admitted {
		entries[e.UID] = e
	}
	backups, restores := &velerov1.BackupList{}, &velerov1.RestoreList{}
	if err := s.Reader.List(ctx, backups, client.InNamespace(s.Namespace)); err != nil {
		return nil, fmt.Errorf("list backups: %w", err)
	}
	if err := s.Reader.List(ctx, restores, client.InNamespace(s.Namespace)); err != nil {
		return nil, fmt.Errorf("list restores: %w", err)
	}
	var out []*queuev1.QueueEntry
	for i := range restores.Items {
		if r := &restores.Items[i]; !r.Status.Phase.Terminal() {
			out = append(out, entry(queuev1.JobKind_JOB_KIND_RESTORE, r, string(r.Status.Phase), entries))
		}
	}
	for i := range backups.Items {
		if b := &backups.Items[i]; !b.Status.Phase.Terminal() {
			out = append(out, entry(queuev1.JobKind_JOB_KIND_BACKUP, b, string(b.Status.Phase), entries))
		}
	}
	slices.SortFunc(out, order)
	number(out)
	return out, nil
}

func entry(kind queuev1.JobKind, obj metav1.Object, phase string, admitted map[types.UID]ledger.Entry) *queuev1.QueueEntry {
	sequence, err := strconv.ParseInt(obj.GetAnnotations()[holdfast.AnnotationQueueSequence], 10, 64)
	if err != nil {
		sequence = 0
	}
	e := &queuev1.QueueEntry{
		Kind: kind, Namespace: obj.GetNamespace(), Name: obj.GetName(), Uid: string(obj.GetUID()),
		Phase: cmp.Or(phase, string(velerov1.BackupPhaseNew)), Sequence: sequence, CreateTime: timestamppb.New(obj.GetCreationTimestamp().Time),
	}
	if a, ok := admitted[obj.GetUID()]; ok {
		e.Namespaces, e.AdmitTime = a.Namespaces, timestamppb.New(a.Since)
	}
	return e
}

// waits tells that an entry has neither been admitted nor begun.
func waits(e *queuev1.QueueEntry) bool {
	return e.GetAdmitTime() == nil &&
		(e.GetPhase() == string(velerov1.BackupPhaseNew) || e.GetPhase() == string(velerov1.BackupPhaseQueued))
}

func order(a, b *queuev1.QueueEntry) int {
	return cmp.Or(
		cmp.Compare(rank(a), rank(b)),
		cmp.Compare(place(a), place(b)),
		a.GetCreateTime().AsTime().Compare(b.GetCreateTime().AsTime()),
		cmp.Compare(a.GetName(), b.GetName()),
	)
}

// rank puts what runs first and waiting restores before waiting backups.
func rank(e *queuev1.QueueEntry) int {
	switch {
	case !waits(e):
		return 0
	case e.GetKind() == queuev1.JobKind_JOB_KIND_RESTORE:
		return 1
	}
	return 2
}

// place puts those without a number last: they have just been submitted.
func place(e *queuev1.QueueEntry) int64 {
	if e.GetSequence() < 1 {
		return math.MaxInt64
	}
	return e.GetSequence()
}

func number(entries []*queuev1.QueueEntry) {
	position := int32(0)
	for _, e := range entries {
		if waits(e) {
			position++
			e.Position = position
		}
	}
}
