package server

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit/limittest"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/layout"
	manifestv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/manifest/v1"
	"github.com/holdfast-io/holdfast/services/manifest-indexer/internal/search"
)

// newSearchBed has three backups of Velero's, an hour apart, and the manifest of backup "b" a day later.
func newSearchBed(t *testing.T) (_ *bed, path string) {
	t.Helper()
	b := newBed(t)
	var objects []client.Object
	for i, name := range []string{"v1", "v2", "v3", "b"} {
		start := metav1.NewTime(time.Date(2026, 1, 1+i/3, i, 0, 0, 0, time.UTC))
		backup := newBackup(name)
		backup.Status.StartTimestamp = &start
		backup.Labels = map[string]string{velerov1.LabelScheduleName: "nightly"}
		objects = append(objects, backup)
		b.store.Set(layout.BackupResourceList(name), limittest.PackedText(t, `{"v1/Pod":["shop/web-1","shop/web-2"],"apps/v1/Deployment":["shop/web"],"example.com/v1/Ingress":["shop/x"],"other.io/v1/Ingress":["shop/x"]}`))
	}
	c := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(objects...).Build()
	path = filepath.Join(t.TempDir(), "search.db")
	database, err := search.OpenDatabase(t.Context(), path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, database.Close()) })
	b.s.Index = search.NewIndexer(search.Config{Reader: c, Cached: c, Namespace: "velero", Opener: b, Clock: clocktesting.NewFakeClock(time.Now()), Log: slog.New(slog.DiscardHandler)}, database)
	before, err := b.s.SearchItems(t.Context(), &manifestv1.SearchItemsRequest{})
	require.NoError(t, err)
	require.True(t, before.GetCoverage().GetIncomplete(), "before backups are counted")
	require.NoError(t, b.s.Index.Pass(t.Context()))
	return b, path
}

// searchAll returns the objects of all pages as lines.
func (b *bed) searchAll(req *manifestv1.SearchItemsRequest) (lines []string) {
	b.t.Helper()
	for more := true; more; more = req.GetPageToken() != "" {
		page, err := b.s.SearchItems(b.t.Context(), req)
		require.NoError(b.t, err)
		for _, i := range page.GetItems() {
			lines = append(lines, fmt.Sprintf("%s.%s %s/%s %d %s-%s", i.GetResource(), i.GetGroup(), i.GetNamespace(), i.GetName(), i.GetBackups(), i.GetOldest().GetBackup(), i.GetNewest().GetBackup()))
		}
		require.Equal(b.t, "indexed:4 backups:4 names_only:3", fmt.Sprintf("indexed:%d backups:%d names_only:%d", page.GetCoverage().GetIndexed(), page.GetCoverage().GetBackups(), page.GetCoverage().GetNamesOnly()))
		require.False(b.t, page.GetCoverage().GetIncomplete())
		req.PageToken = page.GetNextPageToken()
	}
	return lines
}

func TestSearchItems(t *testing.T) {
	b, _ := newSearchBed(t)
	for _, tc := range []struct {
		req  *manifestv1.SearchItemsRequest
		want []string
	}{
		{&manifestv1.SearchItemsRequest{Name: "*eb*", Namespace: "shop", Kinds: []string{"deploy", "po"}, PageSize: 1}, []string{"pods. shop/web-1 3 v1-v3", "pods. shop/web-2 3 v1-v3", "deployments.apps shop/web 4 v1-b"}},
		{&manifestv1.SearchItemsRequest{Kinds: []string{"ingress.other.io"}}, []string{"ingresses.other.io shop/x 3 v1-v3"}},
		{&manifestv1.SearchItemsRequest{Name: "web", Kinds: []string{"deploy"}, Backups: &manifestv1.BackupFilter{Backup: "v2"}}, []string{"deployments.apps shop/web 1 v2-v2"}},
		{&manifestv1.SearchItemsRequest{LabelSelector: "none=here"}, nil},
	} {
		require.Equal(t, tc.want, b.searchAll(tc.req), tc.req)
	}
	page, err := b.s.SearchItems(t.Context(), &manifestv1.SearchItemsRequest{PageSize: 1})
	require.NoError(t, err)
	for field, req := range map[string]*manifestv1.SearchItemsRequest{
		"page_token":     {PageSize: 1, PageToken: page.GetNextPageToken(), Namespace: "shop"},
		"name":           {Name: `a\*`},
		"label_selector": {LabelSelector: "!!"},
		"kinds":          {Kinds: []string{"ingress"}},
	} {
		_, err := b.s.SearchItems(t.Context(), req)
		failed := new(errgrpc.FieldError)
		require.ErrorAs(t, err, &failed)
		require.Equal(t, field, failed.Field)
	}
	_, err = b.s.SearchItems(t.Context(), &manifestv1.SearchItemsRequest{Kinds: []string{"wombat"}})
	require.ErrorIs(t, err, errgrpc.ErrNotFound)
}

func TestGetHistory(t *testing.T) {
	b, _ := newSearchBed(t)
	req, lines := &manifestv1.GetHistoryRequest{Kind: "deploy", Namespace: "shop", Name: "web", PageSize: 3}, []string{}
	for more := true; more; more = req.GetPageToken() != "" {
		page, err := b.s.GetHistory(t.Context(), req)
		require.NoError(t, err)
		require.Equal(t, "apps Deployment", page.GetGroup()+" "+page.GetKind())
		for _, e := range page.GetEntries() {
			lines = append(lines, fmt.Sprintf("%s %s %s", e.GetBackup().GetBackup(), e.GetBackup().GetSchedule(), e.GetChange()))
		}
		req.PageToken = page.GetNextPageToken()
	}
	require.Equal(t, []string{"b nightly CHANGE_UNKNOWN", "v3 nightly CHANGE_UNKNOWN", "v2 nightly CHANGE_UNKNOWN", "v1 nightly CHANGE_FIRST"}, lines)
	require.Equal(t, manifestv1.HistoryEntry_CHANGE_CHANGED, changeSince([]search.Entry{{Hash: []byte{1}}, {Hash: []byte{2}}}))
	require.Equal(t, manifestv1.HistoryEntry_CHANGE_UNCHANGED, changeSince([]search.Entry{{Hash: []byte{1}}, {Hash: []byte{1}}, {Hash: []byte{2}}}))
}

func TestALostIndexIsUnavailable(t *testing.T) {
	b, path := newSearchBed(t)
	require.NoError(t, os.Remove(path))
	_, err := b.s.SearchItems(t.Context(), &manifestv1.SearchItemsRequest{})
	require.ErrorIs(t, err, errgrpc.ErrUnavailable)
	require.NoError(t, b.s.Index.Reset(t.Context()))
	page, err := b.s.SearchItems(t.Context(), &manifestv1.SearchItemsRequest{})
	require.NoError(t, err)
	require.True(t, page.GetCoverage().GetIncomplete())
	for range 4 { // the search has requested a pass, which ends each of these after one backup
		require.NoError(t, b.s.Index.Pass(t.Context()))
	}
	require.Len(t, b.searchAll(&manifestv1.SearchItemsRequest{Kinds: []string{"pod"}}), 2)
}
