package cli_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/timestamppb"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	manifestv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/manifest/v1"
)

// index answers with two pages of objects, and with the history of one of them.
type index struct {
	manifestv1.UnimplementedManifestServiceServer
	searched *manifestv1.SearchItemsRequest
	asked    *manifestv1.GetHistoryRequest
}

func newReferenceTo(name string, hours int, namesOnly bool) *manifestv1.BackupReference {
	return &manifestv1.BackupReference{Backup: name, Location: "eu", Schedule: "nightly", StartTime: timestamppb.New(now.Add(time.Duration(hours) * time.Hour)), NamesOnly: namesOnly}
}

func (x *index) SearchItems(_ context.Context, req *manifestv1.SearchItemsRequest) (*manifestv1.SearchItemsResponse, error) {
	x.searched = req
	coverage := &manifestv1.Coverage{Indexed: 3, Backups: 3}
	switch req.GetName() {
	case "[":
		return nil, errgrpc.Field("name", "is not a pattern")
	case "none":
		return &manifestv1.SearchItemsResponse{Coverage: &manifestv1.Coverage{Indexed: 2, Backups: 3, NamesOnly: 1, Incomplete: true}}, nil
	}
	if req.GetPageToken() == "" {
		web := &manifestv1.FoundItem{Group: "apps", Version: "v1", Kind: "Deployment", Resource: "deployments", Namespace: "shop", Name: "web", Backups: 3, Oldest: newReferenceTo("b1", 0, true), Newest: newReferenceTo("b3", 48, false)}
		return &manifestv1.SearchItemsResponse{Items: []*manifestv1.FoundItem{web}, NextPageToken: "x", Coverage: coverage}, nil
	}
	node := &manifestv1.FoundItem{Version: "v1", Kind: "Node", Resource: "nodes", Name: "web-1", Backups: 1, Oldest: newReferenceTo("b1", 0, true), Newest: newReferenceTo("b1", 0, true)}
	return &manifestv1.SearchItemsResponse{Items: []*manifestv1.FoundItem{node}, Coverage: coverage}, nil
}

func (x *index) GetHistory(_ context.Context, req *manifestv1.GetHistoryRequest) (*manifestv1.GetHistoryResponse, error) {
	x.asked = req
	resp := &manifestv1.GetHistoryResponse{Group: "apps", Kind: "Deployment", Coverage: &manifestv1.Coverage{Indexed: 4, Backups: 4, NamesOnly: 1}}
	switch {
	case req.GetKind() == "ing":
		return nil, errgrpc.Field("kind", `"ing" means several kinds`)
	case req.GetName() == "none":
	case req.GetPageToken() == "":
		resp.NextPageToken = "1"
		resp.Entries = []*manifestv1.HistoryEntry{{Backup: newReferenceTo("b4", 72, false), Change: manifestv1.HistoryEntry_CHANGE_CHANGED}, {Backup: newReferenceTo("b3", 48, false), Change: manifestv1.HistoryEntry_CHANGE_UNCHANGED}}
	default:
		resp.Entries = []*manifestv1.HistoryEntry{{Backup: newReferenceTo("b2", 24, false), Change: manifestv1.HistoryEntry_CHANGE_UNKNOWN}, {Backup: newReferenceTo("b1", 0, true), Change: manifestv1.HistoryEntry_CHANGE_FIRST}}
	}
	return resp, nil
}

// TestSearching compares what the commands print with testdata/search.golden. UPDATE_GOLDEN=1 writes the file anew.
func TestSearching(t *testing.T) {
	var got strings.Builder
	for _, line := range []string{
		"search --help", "search *web*", "search *web* -o wide", "search *web* -o json", "search *web* -o name", "search none", "search [", "search a b", "search --since yesterday", "search *web* -o xml",
		"history --help", "history deploy/web -n shop", "history deploy/web -n shop --changes -o wide", "history deploy/web -n shop -o yaml", "history deploy/web -n shop -o name", "history deploy/none", "history deploy/none -n shop", "history web", "history ing/web",
		"__complete history deploy/w", "__complete history dep", "__complete search --backup d",
	} {
		c := newTestCluster(t, "backup")
		c.Clock = clocktesting.NewFakeClock(now)
		c.ServeManifests(t, &index{})
		result := c.Run(t.Context(), "", strings.Fields(line)...)
		fmt.Fprintf(&got, "$ %s\n%s--- stderr\n%s--- exit %d\n\n", line, result.Out, result.Err, result.Code)
	}
	golden := filepath.Join("testdata", "search.golden")
	if os.Getenv("UPDATE_GOLDEN") != "" {
		require.NoError(t, os.WriteFile(golden, []byte(got.String()), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), got.String())
}

func TestSearchFiltersReachTheService(t *testing.T) {
	c := newTestCluster(t, "backup")
	c.Clock = clocktesting.NewFakeClock(now)
	x := &index{}
	c.ServeManifests(t, x)
	filters := []string{"-n", "shop", "--backup", "b", "--schedule", "s", "--location", "l", "--since", "24h", "--until", "2026-03-04T00:00:00Z"}
	want := &manifestv1.BackupFilter{Backup: "b", Schedule: "s", Location: "l", Since: timestamppb.New(now.Add(-24 * time.Hour)), Until: timestamppb.New(time.Date(2026, 3, 4, 0, 0, 0, 0, time.UTC))}
	c.Run(t.Context(), "", append([]string{"search", "w*", "--kind", "deploy,sts", "-l", "a=b", "--annotation", "x"}, filters...)...)
	require.Equal(t, want.String(), x.searched.GetBackups().String())
	require.Equal(t, []string{"w*", "deploy", "sts", "shop", "a=b", "x", "x"}, append([]string{x.searched.GetName()}, append(x.searched.GetKinds(), x.searched.GetNamespace(), x.searched.GetLabelSelector(), x.searched.GetAnnotations()[0], x.searched.GetPageToken())...))
	c.Run(t.Context(), "", append([]string{"history", "deploy/web"}, filters...)...)
	require.Equal(t, want.String(), x.asked.GetBackups().String())
	require.Equal(t, "shop", x.asked.GetNamespace())
}
