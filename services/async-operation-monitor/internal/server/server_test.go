package server_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-io/holdfast/pkg/archive/itemoperation"
	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	operationv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/operation/v1"
	"github.com/holdfast-io/holdfast/services/async-operation-monitor/internal/server"
)

// jobs are jobs whose operations can be listed.
type jobs struct {
	server.Operations
	of map[string][]itemoperation.Operation
}

func (j jobs) findJob(name string) ([]itemoperation.Operation, error) {
	if list, ok := j.of[name]; ok {
		return list, nil
	}
	return nil, fmt.Errorf("%q: %w", name, errgrpc.ErrNotFound)
}

func (j jobs) OfBackup(_ context.Context, name string) ([]itemoperation.Operation, error) {
	return j.findJob("backup " + name)
}

func (j jobs) OfRestore(_ context.Context, name string) ([]itemoperation.Operation, error) {
	return j.findJob("restore " + name)
}

func ofBackup(name, token string) *operationv1.ListOperationsRequest {
	return &operationv1.ListOperationsRequest{Owner: &operationv1.ListOperationsRequest_Backup{Backup: name}, PageSize: 2, PageToken: token}
}

func TestListOperations(t *testing.T) {
	resource := itemoperation.Resource{Group: "apps", Resource: "deployments", Namespace: "n", Name: "x"}
	three := []itemoperation.Operation{
		{Spec: itemoperation.Spec{ID: "1", BackupAction: "act", Resource: resource}, Status: itemoperation.Status{Phase: "Failed", Error: "no"}},
		{Spec: itemoperation.Spec{ID: "2"}, Status: itemoperation.Status{Phase: "New"}},
		{Spec: itemoperation.Spec{ID: "3", RestoreAction: "other"}, Status: itemoperation.Status{Phase: "InProgress"}},
	}
	s := &server.Server{Operations: jobs{of: map[string][]itemoperation.Operation{"backup b": three, "restore r": {}}}}
	first, err := s.ListOperations(t.Context(), ofBackup("b", ""))
	require.NoError(t, err)
	require.Len(t, first.GetOperations(), 2)
	require.Equal(t, "deployments.apps", first.GetOperations()[0].GetGroupResource())
	require.Equal(t, operationv1.OperationPhase_OPERATION_PHASE_FAILED, first.GetOperations()[0].GetPhase())
	second, err := s.ListOperations(t.Context(), ofBackup("b", first.GetNextPageToken()))
	require.NoError(t, err)
	require.Len(t, second.GetOperations(), 1)
	require.Equal(t, "other", second.GetOperations()[0].GetAction())
	require.Empty(t, second.GetNextPageToken())

	none, err := s.ListOperations(t.Context(), &operationv1.ListOperationsRequest{Owner: &operationv1.ListOperationsRequest_Restore{Restore: "r"}})
	require.NoError(t, err)
	require.Empty(t, none.GetOperations())
	for want, req := range map[codes.Code]*operationv1.ListOperationsRequest{
		codes.NotFound: ofBackup("absent", ""), codes.InvalidArgument: ofBackup("b", "junk"),
	} {
		_, err := s.ListOperations(t.Context(), req)
		status, _ := errgrpc.Status(err)
		require.Equal(t, want, status.Code())
	}
}
