package collect

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/archive/part"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
	"github.com/holdfast-io/holdfast/pkg/kube/rawlist"
	"github.com/holdfast-io/holdfast/pkg/kube/resource"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
	"github.com/holdfast-io/holdfast/pkg/spec/selection"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/cut"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// kinds is a small cluster.
var kinds = []kubetest.Kind{
	{Version: "v1", Kind: "ConfigMap", Resource: "configmaps", Namespaced: true},
	{Version: "v1", Kind: "Namespace", Resource: "namespaces"},
	{Version: "v1", Kind: "Pod", Resource: "pods", Namespaced: true},
	{Version: "v1", Kind: "PersistentVolumeClaim", Resource: "persistentvolumeclaims", Namespaced: true},
	{Version: "v1", Kind: "PersistentVolume", Resource: "persistentvolumes"},
	{Version: "v1", Kind: "Node", Resource: "nodes"},
	{Group: "example.com", Version: "v1", Kind: "Widget", Resource: "widgets", Namespaced: true, Custom: true},
	{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition", Resource: "customresourcedefinitions"},
}

func newEstateServer() *kubetest.Server {
	s := kubetest.New(kinds...)
	for _, ns := range []string{"a", "b", "empty"} {
		s.Add("namespaces", kubetest.Object{Name: ns})
	}
	for i := range 300 {
		s.Add("configmaps", kubetest.Object{Namespace: []string{"a", "b"}[i%2], Name: fmt.Sprintf("cm-%03d", i),
			Labels: map[string]string{"app": []string{"x", "y", "z"}[i%3]}, Body: map[string]any{"data": map[string]string{"k": "v"}}})
	}
	s.Add("widgets.example.com", kubetest.Object{Namespace: "a", Name: "w1"}, kubetest.Object{Namespace: "a", Name: "w2"})
	s.Add("customresourcedefinitions.apiextensions.k8s.io",
		kubetest.Object{Name: "widgets.example.com"}, kubetest.Object{Name: "gadgets.example.com"})
	s.Add("nodes", kubetest.Object{Name: "n1"})
	return s
}

// setup is one job against a server.
type setup struct {
	cfg   Config
	job   Job
	store *memstore.Store
	lists *rawlist.Client
}

func newSetup(t testing.TB, api *kubetest.Server, spec velerov1.BackupSpec, namespaces ...string) *setup {
	t.Helper()
	srv := httptest.NewServer(api)
	t.Cleanup(srv.Close)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	cfg := &rest.Config{Host: srv.URL, QPS: -1}
	lists, err := rawlist.New(cfg, rawlist.Options{Clock: fastClock{}, FirstLimit: 10, PageBytes: 2 << 10})
	require.NoError(t, err)
	catalog, err := resource.Discover(t.Context(), cfg)
	require.NoError(t, err)
	if namespaces == nil {
		namespaces = []string{"*"}
	}
	filter, err := selection.NewFilter(selection.FromBackup(&spec), namespaces, catalog)
	require.NoError(t, err)
	start := metav1.NewTime(time.Unix(1700000000, 0))
	b := &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "b1", UID: "uid-1"}, Spec: spec}
	b.Status.StartTimestamp = &start
	store := memstore.New()
	return &setup{
		cfg: Config{Lister: lists, Clock: clock.RealClock{}, Log: slog.New(slog.DiscardHandler), Workers: 3, PartBytes: 8 << 20, PartItems: 40, BlockWorkers: 1},
		job: Job{Backup: b, Epoch: 1, Filter: filter, Catalog: catalog, Cut: cut.New(revisions{lists, cut.NewKinds(lists, clock.RealClock{})}, true), Store: store,
			Dir: t.TempDir(), LiveNamespaces: func(context.Context) (int, error) { return 3, nil }, Progress: &Progress{}},
		store: store, lists: lists,
	}
}

// revisions is what a cut is made of.
type revisions struct {
	*rawlist.Client
	*cut.Kinds
}

type fastClock struct{ clock.RealClock }

func (fastClock) NewTimer(d time.Duration) clock.Timer { return clock.RealClock{}.NewTimer(d / 1000) }

// stored is what the parts of a result hold.
type stored struct {
	items   []string // un-versioned paths, in order of names
	raw     map[string][]byte
	notes   []joblog.Entry
	records []checkpoint.Record
	// entries are the manifest's by path, failed those of failed objects by key.
	entries map[string]manifest.Item
	failed  []string
}

func (s *setup) readStored(t *testing.T, res Result) stored {
	t.Helper()
	out := stored{raw: map[string][]byte{}, entries: map[string]manifest.Item{}}
	err := checkpoint.Each(t.Context(), s.store, "b1", "uid-1", res.Checkpoints, func(_ string, rec *checkpoint.Record) error {
		out.records = append(out.records, *rec)
		if rec.Part.Key != "" {
			data, ok := s.store.Bytes(rec.Part.Key)
			require.True(t, ok, "the part was durable before its record")
			out.readPart(t, data)
		}
		if rec.Part.SidecarKey != "" {
			sidecar, ok := s.store.Bytes(rec.Part.SidecarKey)
			require.True(t, ok)
			out.readSidecar(t, sidecar)
		}
		return nil
	})
	require.NoError(t, err)
	slices.Sort(out.items)
	slices.Sort(out.failed)
	return out
}

func (s *stored) readPart(t *testing.T, data []byte) {
	t.Helper()
	zr, err := gzip.NewReader(bytes.NewReader(data))
	require.NoError(t, err)
	for tr := tar.NewReader(zr); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return // parts carry no tar trailer
		}
		require.NoError(t, err)
		if strings.Contains(h.Name, "-preferredversion/") {
			continue
		}
		s.items = append(s.items, h.Name)
		s.raw[h.Name], err = io.ReadAll(tr)
		require.NoError(t, err)
	}
}

func (s *stored) readSidecar(t *testing.T, data []byte) {
	t.Helper()
	r, err := part.OpenSidecar(bytes.NewReader(data))
	require.NoError(t, err)
	for {
		key, value, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		entry, err := part.ParseEntry(key, value)
		require.NoError(t, err)
		if !entry.Stored {
			s.failed = append(s.failed, strings.ReplaceAll(string(key), "\x00", " "))
			continue
		}
		var item manifest.Item
		require.NoError(t, json.Unmarshal(slices.Concat([]byte("{"), entry.JSON, []byte("}")), &item))
		s.entries[item.Path] = item
	}
	for {
		e, err := r.Note()
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(t, err)
		s.notes = append(s.notes, e)
	}
}

func (s stored) countOf(resource string) int {
	n := 0
	for _, path := range s.items {
		if strings.HasPrefix(path, "resources/"+resource+"/") {
			n++
		}
	}
	return n
}

func (s stored) notesAt(level joblog.Level) []string {
	var out []string
	for _, e := range s.notes {
		if e.Level == level {
			out = append(out, e.Resource+" "+e.Namespace+"/"+e.Name+": "+e.Message)
		}
	}
	return out
}
