package cli_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	backupv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/backup/v1"
	manifestv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/manifest/v1"
)

// diffs answers with differences in two messages, unless both names are the same, and with related objects.
type diffs struct {
	manifestv1.UnimplementedManifestServiceServer
	clock *clocktesting.FakeClock // steps before each message
	asked *manifestv1.DiffManifestsRequest
}

func (d *diffs) DiffManifests(req *manifestv1.DiffManifestsRequest, stream grpc.ServerStreamingServer[manifestv1.DiffManifestsResponse]) error {
	d.asked = req
	if req.GetTo() == "absent" {
		return fmt.Errorf("backup %q: %w", req.GetTo(), errgrpc.ErrNotFound)
	}
	if len(req.GetKinds()) > 0 && req.GetKinds()[0] == "ing" {
		return errgrpc.Field("kinds", `"ing" means several kinds of the backup`)
	}
	if req.GetTo() == req.GetFrom() {
		return stream.Send(&manifestv1.DiffManifestsResponse{Counts: &manifestv1.DiffCounts{Unchanged: 7}})
	}
	d.clock.Step(2 * time.Second)
	first := &manifestv1.DiffManifestsResponse{Counts: &manifestv1.DiffCounts{Added: 1, Removed: 1, Unchanged: 5}, Differences: []*manifestv1.ItemDifference{
		{Change: manifestv1.ItemDifference_CHANGE_ADDED, Group: "rbac.authorization.k8s.io", Kind: "ClusterRole", Resource: "clusterroles", Name: "reader", ToVersion: "v1"},
		{Change: manifestv1.ItemDifference_CHANGE_REMOVED, Kind: "ConfigMap", Resource: "configmaps", Namespace: "shop", Name: "old", FromVersion: "v1"},
	}}
	if err := stream.Send(first); err != nil {
		return err
	}
	changed := []*manifestv1.ItemDifference{
		{Change: manifestv1.ItemDifference_CHANGE_CHANGED, Kind: "Secret", Namespace: "shop", Name: "db", FromVersion: "v1", ToVersion: "v1", Fields: []*manifestv1.FieldDifference{{Path: "data.password", Masked: true}}},
		{Change: manifestv1.ItemDifference_CHANGE_CHANGED, Group: "g.io", Kind: "Widget", Namespace: "shop", Name: "w", FromVersion: "v1", ToVersion: "v2", MoreFields: true, Fields: []*manifestv1.FieldDifference{
			{Path: "spec.replicas", From: ptr.To("2"), To: ptr.To("3")}, {Path: "spec.gone", From: ptr.To(`{"a":"b"}`)}, {Path: "spec.long", To: ptr.To(`"xxx… (2000 bytes)`)}, {Path: "spec[\x1b[2J]", To: ptr.To("1")},
		}},
	}
	if !req.GetWithFields() {
		for _, c := range changed {
			c.Fields, c.MoreFields = nil, false
		}
	}
	d.clock.Step(2 * time.Second)
	return stream.Send(&manifestv1.DiffManifestsResponse{Counts: &manifestv1.DiffCounts{Added: 1, Removed: 1, Changed: 2, Unchanged: 6}, Differences: changed})
}

// clusterDiffs answers with the differences of diffs, after a while of listing.
type clusterDiffs struct {
	backupv1.UnimplementedBackupServiceServer
	*diffs
}

func (c clusterDiffs) DiffCluster(req *backupv1.DiffClusterRequest, stream grpc.ServerStreamingServer[backupv1.DiffClusterResponse]) error {
	for listed := range int64(3) {
		c.clock.Step(2 * time.Second)
		if err := stream.Send(&backupv1.DiffClusterResponse{Listed: 100 * listed}); err != nil {
			return err
		}
	}
	messages := []string{"objects of pods could not be listed: forbidden"}
	return c.DiffManifests(&manifestv1.DiffManifestsRequest{From: "older", To: req.GetBackup(), Kinds: req.GetKinds(), WithFields: req.GetWithFields()},
		clusterStream{stream, &messages})
}

// clusterStream sends what DiffManifests sends as messages of DiffCluster.
type clusterStream struct {
	grpc.ServerStreamingServer[backupv1.DiffClusterResponse]
	messages *[]string
}

func (s clusterStream) Send(m *manifestv1.DiffManifestsResponse) error {
	out := &backupv1.DiffClusterResponse{Differences: m.GetDifferences(), Counts: m.GetCounts(), Messages: *s.messages}
	*s.messages = nil
	return s.ServerStreamingServer.Send(out)
}

// ListRelated answers with two messages.
func (d *diffs) ListRelated(req *manifestv1.ListRelatedRequest, stream grpc.ServerStreamingServer[manifestv1.ListRelatedResponse]) error {
	if req.GetName() == "absent" {
		return fmt.Errorf("item not in manifest: %w", errgrpc.ErrNotFound)
	}
	if req.GetWithoutChildren() {
		return nil
	}
	for _, i := range []*manifestv1.RelatedItem{
		{Version: "v1", Kind: "Pod", Namespace: "shop", Name: "web-1", Of: newReference("owns", "apps", "Deployment", "shop", req.GetName())},
		{Group: "storage.k8s.io", Version: "v1", Kind: "StorageClass", Name: "fast", Path: "resources/storageclasses.storage.k8s.io/cluster/fast.json", Of: newReference("provisionedBy", "", "PersistentVolumeClaim", "shop", "data")},
	} {
		if err := stream.Send(&manifestv1.ListRelatedResponse{Items: []*manifestv1.RelatedItem{i}, More: i.GetName() == "fast"}); err != nil {
			return err
		}
	}
	return nil
}

// TestDiffOfBackups compares what `backup diff` and `backup related` print with testdata/diff.golden. UPDATE_GOLDEN=1 writes the file
// anew.
func TestDiffOfBackups(t *testing.T) {
	var got strings.Builder
	for _, line := range []string{
		"diff", "diff done", "diff done partly", "diff done partly --name-only", "diff done partly -o json", "diff done partly -o jsonpath={.differences[*].name}", "diff done done", "diff done done -o yaml",
		"diff done --cluster", "diff done --cluster --name-only -o json", "diff older --cluster", "diff absent --cluster", "diff done --cluster --kind ing", "diff done partly --cluster", "diff done --cluster --backup-address nowhere",
		"diff done absent", "diff done partly --kind ing", "diff done partly -o name", "diff done partly --manifest-address nowhere",
		"related done", "related done web", "related done deploy/web -n shop", "related done deploy/web -n shop -o json", "related done deploy/web --children=false", "related done deploy/web --children=false --dependencies=false",
		"related done deploy/web -n shop --reverse", "related done deploy/absent",
	} {
		c := newTestCluster(t, "backup")
		clock := clocktesting.NewFakeClock(now)
		c.Clock = clock
		service := &diffs{clock: clock}
		if strings.Contains(line, "--cluster") {
			c.ServeBackups(t, checks{}, clusterDiffs{diffs: service})
		} else {
			c.ServeManifests(t, service)
		}
		result := c.Run(t.Context(), "", append([]string{"backup"}, strings.Fields(line)...)...)
		fmt.Fprintf(&got, "$ backup %s\n%s--- stderr\n%s--- exit %d\n\n", line, result.Out, result.Err, result.Code)
	}
	golden := filepath.Join("testdata", "diff.golden")
	if os.Getenv("UPDATE_GOLDEN") != "" {
		require.NoError(t, os.WriteFile(golden, []byte(got.String()), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), got.String())
}

func TestDiffIsColouredOnATerminal(t *testing.T) {
	c := newTestCluster(t, "backup")
	clock := clocktesting.NewFakeClock(now)
	c.Clock, c.Live = clock, true
	service := &diffs{clock: clock}
	c.ServeManifests(t, service)
	result := c.Run(t.Context(), "", "backup", "diff", "done", "partly", "-n", "shop", "--kind", "cm,po")
	require.Contains(t, result.Out, "\x1b[32m+ ClusterRole.rbac.authorization.k8s.io reader\x1b[0m\n\x1b[31m- ConfigMap shop/old\x1b[0m\n")
	require.Equal(t, 1, result.Code)
	require.True(t, strings.HasSuffix(result.Err, "\r\x1b[K"), "%q", result.Err)
	require.Equal(t, "shop", service.asked.GetNamespace())
	require.Equal(t, []string{"cm", "po"}, service.asked.GetKinds())

	c.Env = map[string]string{"NO_COLOR": "1"}
	require.NotContains(t, c.Run(t.Context(), "", "backup", "diff", "done", "partly").Out, "\x1b")
}
