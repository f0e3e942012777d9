package surface

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// methodOffer is a gRPC service and its methods.
type methodOffer struct {
	service string
	rpcs    []string
}

// ofHomes is what a service offers whose plugins' processes operations live in.
var ofHomes = methodOffer{"holdfast.operation.v1.OperationService", []string{"Cancel", "Forget", "GetProgress", "StreamLogs"}}

// offers are what each service offers, as its contract says.
var offers = map[string][]methodOffer{
	"queue-scheduler":         {{"holdfast.queue.v1.QueueService", []string{"CancelBackup", "CancelRestore", "ExplainBackup", "ListQueue", "SubmitBackup", "SubmitRestore", "WatchQueue"}}},
	"backup-runner":           {{"holdfast.backup.v1.BackupService", []string{"GetProgress", "WatchProgress"}}, ofHomes},
	"restore-runner":          {{"holdfast.restore.v1.RestoreService", []string{"GetProgress", "WatchProgress"}}, ofHomes},
	"async-operation-monitor": {{"holdfast.operation.v1.OperationMonitorService", []string{"CancelOperation", "ListOperations", "StreamOperationLogs", "WatchOperations"}}},
	"manifest-indexer":        {{"holdfast.manifest.v1.ManifestService", []string{"GetItem", "GetManifest", "ListItems"}}},
	"deletion":                {{"holdfast.deletion.v1.DeletionService", []string{"DeleteBackup", "GetDeletion"}}},
}

// runGrpcurl calls a service without TLS and wants success.
func (b *bed) runGrpcurl(t *testing.T, service string, flags []string, args ...string) string {
	t.Helper()
	out, errs, code := runTool(t, "", "grpcurl", slices.Concat([]string{"-plaintext"}, flags, []string{b.serviceAddress(service)}, args)...)
	require.Zero(t, code, "grpcurl %v: %s", args, errs)
	return out
}

// callMethod makes an RPC and decodes the answer.
func (b *bed) callMethod(t *testing.T, service, method, request string) map[string]any {
	t.Helper()
	var answer map[string]any
	require.NoError(t, json.Unmarshal([]byte(b.runGrpcurl(t, service, []string{"-d", request}, method)), &answer))
	return answer
}

// testContract finds by reflection alone what the contract says, no more and no less, and every service
// healthy.
func (b *bed) testContract(t *testing.T) {
	for service, wanted := range offers {
		listed := []string{"grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection"}
		for _, want := range wanted {
			listed = append(listed, want.service)
			b.checkOffered(t, service, want)
		}
		require.ElementsMatch(t, listed, sortLines(b.runGrpcurl(t, service, nil, "list")), service)
		answer := b.callMethod(t, service, "grpc.health.v1.Health/Check", `{"service":""}`)
		require.Equal(t, "SERVING", answer["status"], service)
		status := b.requireRefused(t, service, "grpc.health.v1.Health/Check", `{"service":"holdfast.none.v1.NoService"}`)
		require.Equal(t, notFound, status.Code)
	}
	message := b.runGrpcurl(t, "queue-scheduler", nil, "describe", "holdfast.queue.v1.SubmitBackupRequest")
	require.Contains(t, message, "google.protobuf.Struct spec = 4")
}

// checkOffered finds the methods of one gRPC service, and it healthy.
func (b *bed) checkOffered(t *testing.T, service string, want methodOffer) {
	full := make([]string, len(want.rpcs))
	description := b.runGrpcurl(t, service, nil, "describe", want.service)
	for i, rpc := range want.rpcs {
		full[i] = want.service + "." + rpc
		require.Contains(t, description, "rpc "+rpc+" ( ")
		request := b.runGrpcurl(t, service, nil, "describe", want.service+"."+rpc)
		require.Contains(t, request, rpc+"Request", "the method's own description")
	}
	require.Equal(t, full, sortLines(b.runGrpcurl(t, service, nil, "list", want.service)), service)
	answer := b.callMethod(t, service, "grpc.health.v1.Health/Check", `{"service":"`+want.service+`"}`)
	require.Equal(t, "SERVING", answer["status"], "%s %q", service, want.service)
}

// sortLines sorts what grpcurl lists.
func sortLines(text string) []string {
	all := strings.Fields(text)
	slices.Sort(all)
	return all
}

const (
	invalidArgument    = 3
	notFound           = 5
	alreadyExists      = 6
	failedPrecondition = 9
)

// rpcStatus is a google.rpc.Status as grpcurl prints it.
type rpcStatus struct {
	Code    int
	Message string
	Details []struct {
		Type            string `json:"@type"`
		Reason, Domain  string
		FieldViolations []struct{ Field, Description string }
	}
}

// faultyFields returns the fields the status complains about, each once, sorted.
func (s rpcStatus) faultyFields() []string {
	var fields []string
	for _, d := range s.Details {
		for _, v := range d.FieldViolations {
			fields = append(fields, v.Field)
		}
	}
	slices.Sort(fields)
	return slices.Compact(fields)
}

// machineReason returns the reason for machines.
func (s rpcStatus) machineReason() string {
	for _, d := range s.Details {
		if d.Type == "type.googleapis.com/google.rpc.ErrorInfo" && d.Domain == "holdfast.io" {
			return d.Reason
		}
	}
	return ""
}

// requireRefused makes an RPC that must fail. grpcurl's exit code is 64 and the status code.
func (b *bed) requireRefused(t *testing.T, service, method, request string) rpcStatus {
	t.Helper()
	_, errs, code := runTool(t, "", "grpcurl", "-plaintext", "-format-error", "-d", request, b.serviceAddress(service), method)
	var s rpcStatus
	require.NoError(t, json.Unmarshal([]byte(errs), &s), errs)
	require.Equal(t, 64+s.Code, code, errs)
	return s
}

// testRefusals requires each bad request answered with the fields at fault and a stable reason.
func (b *bed) testRefusals(t *testing.T) {
	const submit = "holdfast.queue.v1.QueueService/SubmitBackup"
	for request, fields := range map[string][]string{
		`{}`:                      {"name"},
		`{"name":"Not A Name"}`:   {"name"},
		`{"name":"../elsewhere"}`: {"name"},
		`{"name":"typo","spec":{"includedNamespacez":["shop"]}}`:                         {"spec.includedNamespacez"},
		`{"name":"wrong","spec":{"includedNamespaces":"shop"}}`:                          {"spec.includedNamespaces"},
		`{"name":"later","spec":{"snapshotMoveData":true,"orderedResources":{"a":"b"}}}`: {"spec.orderedResources", "spec.snapshotMoveData"},
	} {
		s := b.requireRefused(t, "queue-scheduler", submit, request)
		require.Equal(t, invalidArgument, s.Code, request)
		require.Equal(t, "INVALID_FIELD", s.machineReason(), request)
		require.Equal(t, fields, s.faultyFields(), request)
	}
	require.Empty(t, b.runKubectl(t, "", "get", "backups.velero.io", "-n", "velero", "-o", "name"), "nothing was created")

	s := b.requireRefused(t, "backup-runner", "holdfast.backup.v1.BackupService/GetProgress", `{"name":"absent"}`)
	require.Equal(t, notFound, s.Code)
	require.Equal(t, "NOT_FOUND", s.machineReason())
	s = b.requireRefused(t, "manifest-indexer", "holdfast.manifest.v1.ManifestService/ListItems", `{"backup":"absent","pageSize":5000}`)
	require.Equal(t, invalidArgument, s.Code)
	require.Equal(t, []string{"page_size"}, s.faultyFields())
}
