package badinput

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	manifestv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/manifest/v1"
	queuev1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/queue/v1"
)

func (b *bed) dialService(t *testing.T, service string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(b.fleet.Of(service)[0].GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	return conn
}

// fieldViolations requires InvalidArgument and returns the descriptions by field.
func fieldViolations(t *testing.T, err error) map[string]string {
	t.Helper()
	require.Equal(t, codes.InvalidArgument, status.Code(err), err)
	out := map[string]string{}
	for _, detail := range status.Convert(err).Details() {
		if bad, ok := detail.(*errdetails.BadRequest); ok {
			for _, v := range bad.GetFieldViolations() {
				out[v.GetField()] = v.GetDescription()
			}
		}
	}
	return out
}

func (b *bed) submitBadRequests(t *testing.T) {
	t.Parallel()
	queue := queuev1.NewQueueServiceClient(b.dialService(t, "queue-scheduler"))
	for field, spec := range map[string]map[string]any{
		"spec.includedNamespace":                  {"includedNamespace": []any{"a"}},
		"spec.labelSelector.matchLabel":           {"labelSelector": map[string]any{"matchLabel": map[string]any{"a": "b"}}},
		"spec.ttl":                                {"ttl": "soon"},
		"spec.includedNamespaces":                 {"includedNamespaces": "a"},
		"spec.hooks.resources[0].pre[0].exec":     {"hooks": map[string]any{"resources": []any{map[string]any{"name": "h", "pre": []any{map[string]any{}}}}}},
		"spec.labelSelector":                      {"labelSelector": map[string]any{"matchLabels": map[string]any{"a": "not a value!"}}},
		"spec.includedResources":                  {"includedResources": []any{1.0}},
		"spec.snapshotMoveData":                   {"snapshotMoveData": true},
		"spec.uploaderConfig.parallelFilesUpload": {"uploaderConfig": map[string]any{"parallelFilesUpload": 3.0}},
	} {
		t.Run(field, func(t *testing.T) {
			value, err := structpb.NewStruct(spec)
			require.NoError(t, err)
			_, err = queue.SubmitBackup(t.Context(), &queuev1.SubmitBackupRequest{Name: "submitted", Spec: value})
			require.Contains(t, fieldViolations(t, err), field, err)
		})
	}
	t.Run("name", func(t *testing.T) {
		_, err := queue.SubmitBackup(t.Context(), &queuev1.SubmitBackupRequest{Name: "Not A Name"})
		require.Contains(t, fieldViolations(t, err), "name", err)
	})
	t.Run("restore without spec", func(t *testing.T) {
		_, err := queue.SubmitRestore(t.Context(), &queuev1.SubmitRestoreRequest{Name: "submitted"})
		require.Contains(t, fieldViolations(t, err), "spec", err)
	})
	t.Run("restore of an unknown field", func(t *testing.T) {
		value, err := structpb.NewStruct(map[string]any{"backupName": "intact", "backup": "intact"})
		require.NoError(t, err)
		_, err = queue.SubmitRestore(t.Context(), &queuev1.SubmitRestoreRequest{Name: "submitted", Spec: value})
		require.Contains(t, fieldViolations(t, err), "spec.backup", err)
	})
	t.Run("label", func(t *testing.T) {
		_, err := queue.SubmitBackup(t.Context(), &queuev1.SubmitBackupRequest{Name: "submitted", Labels: map[string]string{"a": "not a value!"}})
		require.Equal(t, codes.InvalidArgument, status.Code(err), err)
		require.ErrorContains(t, err, "metadata.labels")
	})
	err := b.client.Get(t.Context(), client.ObjectKey{Namespace: server, Name: "submitted"}, &velerov1.Backup{})
	require.True(t, apierrors.IsNotFound(err), "nothing was created")
}

func (b *bed) unknownManifest(t *testing.T) {
	t.Parallel()
	manifests := manifestv1.NewManifestServiceClient(b.dialService(t, "manifest-indexer"))
	_, err := manifests.GetManifest(t.Context(), &manifestv1.GetManifestRequest{Backup: "nothing"})
	require.Equal(t, codes.NotFound, status.Code(err), err)
	require.ErrorContains(t, err, "nothing")
	_, err = manifests.GetManifest(t.Context(), &manifestv1.GetManifestRequest{Backup: "../etc"})
	require.Contains(t, fieldViolations(t, err), "backup", err)
}

func (b *bed) refuseDeletions(t *testing.T) {
	t.Parallel()
	for backup, want := range map[string]string{"": "spec.backupName", "nothing": "backup not found", "../../etc": "spec.backupName"} {
		t.Run(want+" "+backup, func(t *testing.T) {
			t.Parallel()
			request := &velerov1.DeleteBackupRequest{ObjectMeta: metav1.ObjectMeta{Namespace: server, GenerateName: "refused-"}}
			request.Spec.BackupName = backup
			b.api.createObject(t, request)
			require.Eventually(t, func() bool {
				return b.client.Get(t.Context(), client.ObjectKeyFromObject(request), request) == nil &&
					request.Status.Phase == velerov1.DeleteBackupRequestPhaseProcessed
			}, patience, look)
			require.Len(t, request.Status.Errors, 1)
			require.Contains(t, request.Status.Errors[0], want)
		})
	}
}

// refuseDownloads: a kind that does not exist is refused by the definition, an unknown backup gets
// no URL.
func (b *bed) refuseDownloads(t *testing.T) {
	t.Parallel()
	request := func(kind velerov1.DownloadTargetKind, name string) *velerov1.DownloadRequest {
		r := &velerov1.DownloadRequest{ObjectMeta: metav1.ObjectMeta{Namespace: server, GenerateName: "refused-"}}
		r.Spec.Target = velerov1.DownloadTarget{Kind: kind, Name: name}
		return r
	}
	err := b.client.Create(t.Context(), request("BackupSecrets", "intact"))
	require.True(t, apierrors.IsInvalid(err), err)
	require.ErrorContains(t, err, "spec.target.kind")
	for _, target := range []*velerov1.DownloadRequest{
		request(velerov1.DownloadTargetKindBackupLog, "nothing"), request(velerov1.DownloadTargetKindRestoreLog, "nothing"),
		request(velerov1.DownloadTargetKindBackupLog, "../../etc/passwd"),
	} {
		b.api.createObject(t, target)
		require.Eventually(t, func() bool {
			return b.client.Get(t.Context(), client.ObjectKeyFromObject(target), target) == nil && target.Status.Expiration != nil
		}, patience, look, "the request was looked at")
		require.Empty(t, target.Status.DownloadURL)
		require.NotEqual(t, velerov1.DownloadRequestPhaseProcessed, target.Status.Phase)
	}
}
