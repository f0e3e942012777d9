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
	"os"
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
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/pkg/journal"
	"github.com/holdfast-io/holdfast/pkg/manifest"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
	"github.com/holdfast-io/holdfast/pkg/part"
	"github.com/holdfast-io/holdfast/pkg/rawlist"
	"github.com/holdfast-io/holdfast/pkg/reference"
	"github.com/holdfast-io/holdfast/pkg/resource"
	"github.com/holdfast-io/holdfast/pkg/selection"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/apifake"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/cut"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// kinds is a small cluster.
var kinds = []apifake.Kind{
	{Version: "v1", Kind: "ConfigMap", Resource: "configmaps", Namespaced: true},
	{Version: "v1", Kind: "Namespace", Resource: "namespaces"},
	{Version: "v1", Kind: "Pod", Resource: "pods", Namespaced: true},
	{Version: "v1", Kind: "PersistentVolumeClaim", Resource: "persistentvolumeclaims", Namespaced: true},
	{Version: "v1", Kind: "PersistentVolume", Resource: "persistentvolumes"},
	{Version: "v1", Kind: "Node", Resource: "nodes"},
	{Group: "example.com", Version: "v1", Kind: "Widget", Resource: "widgets", Namespaced: true, Custom: true},
	{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition", Resource: "customresourcedefinitions"},
}

func estate() *apifake.Server {
	s := apifake.New(kinds...)
	for _, ns := range []string{"a", "b", "empty"} {
		s.Add("namespaces", apifake.Object{Name: ns})
	}
	for i := range 300 {
		s.Add("configmaps", apifake.Object{Namespace: []string{"a", "b"}[i%2], Name: fmt.Sprintf("cm-%03d", i),
			Labels: map[string]string{"app": []string{"x", "y", "z"}[i%3]}, Body: map[string]any{"data": map[string]string{"k": "v"}}})
	}
	s.Add("widgets.example.com", apifake.Object{Namespace: "a", Name: "w1"}, apifake.Object{Namespace: "a", Name: "w2"})
	s.Add("customresourcedefinitions.apiextensions.k8s.io",
		apifake.Object{Name: "widgets.example.com"}, apifake.Object{Name: "gadgets.example.com"})
	s.Add("nodes", apifake.Object{Name: "n1"})
	return s
}

// setup is one job against a server.
type setup struct {
	cfg   Config
	job   Job
	store *memstore.Store
	lists *rawlist.Client
}

func newSetup(t testing.TB, api *apifake.Server, spec velerov1.BackupSpec, namespaces ...string) *setup {
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
		cfg: Config{Lister: lists, Clock: clock.RealClock{}, Log: slog.New(slog.DiscardHandler), Workers: 3, PartItems: 40},
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
	notes   []joblog.Entry
	records []checkpoint.Record
	// references by tarball path, as the sidecars hand them to the manifest.
	references map[string][]manifest.Reference
}

func (s *setup) read(t *testing.T, res Result) stored {
	t.Helper()
	out := stored{references: map[string][]manifest.Reference{}}
	err := checkpoint.Each(t.Context(), s.store, "b1", "uid-1", res.Checkpoints, func(_ string, rec *checkpoint.Record) error {
		out.records = append(out.records, *rec)
		if rec.Part.Key != "" {
			data, ok := s.store.Bytes(rec.Part.Key)
			require.True(t, ok, "the part was durable before its record")
			out.items = append(out.items, entries(t, data)...)
		}
		if rec.Part.SidecarKey != "" {
			sidecar, ok := s.store.Bytes(rec.Part.SidecarKey)
			require.True(t, ok)
			out.notes = append(out.notes, out.sidecar(t, sidecar)...)
		}
		return nil
	})
	require.NoError(t, err)
	slices.Sort(out.items)
	return out
}

func entries(t *testing.T, data []byte) []string {
	t.Helper()
	zr, err := gzip.NewReader(bytes.NewReader(data))
	require.NoError(t, err)
	tr := tar.NewReader(zr)
	var out []string
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return out // parts carry no tar trailer
		}
		require.NoError(t, err)
		if !strings.Contains(h.Name, "-preferredversion/") {
			out = append(out, h.Name)
		}
	}
}

// sidecar takes the references of its items and returns its notes.
func (s stored) sidecar(t *testing.T, data []byte) []joblog.Entry {
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
		var item manifest.Item
		require.NoError(t, json.Unmarshal(slices.Concat([]byte("{"), entry.JSON, []byte("}")), &item))
		if item.References != nil {
			s.references[item.Path] = item.References
		}
	}
	var out []joblog.Entry
	for {
		e, err := r.Note()
		if errors.Is(err, io.EOF) {
			return out
		}
		require.NoError(t, err)
		out = append(out, e)
	}
}

func (s stored) of(resource string) int {
	n := 0
	for _, path := range s.items {
		if strings.HasPrefix(path, "resources/"+resource+"/") {
			n++
		}
	}
	return n
}

func (s stored) at(level joblog.Level) []string {
	var out []string
	for _, e := range s.notes {
		if e.Level == level {
			out = append(out, e.Resource+" "+e.Namespace+"/"+e.Name+": "+e.Message)
		}
	}
	return out
}

func TestEverythingSelectedIsStoredOnce(t *testing.T) {
	yes := true
	tests := map[string]struct {
		spec       velerov1.BackupSpec
		namespaces []string
		want       map[string]int
	}{
		"no filter": {want: map[string]int{"configmaps": 300, "widgets.example.com": 2, "namespaces": 3, "nodes": 1, "customresourcedefinitions.apiextensions.k8s.io": 2}},
		"one namespace": {namespaces: []string{"a"}, spec: velerov1.BackupSpec{IncludedNamespaces: []string{"a"}},
			want: map[string]int{"configmaps": 150, "widgets.example.com": 2, "namespaces": 1, "nodes": 0, "customresourcedefinitions.apiextensions.k8s.io": 1}},
		"two of three in one list": {namespaces: []string{"b", "empty"},
			want: map[string]int{"configmaps": 150, "widgets.example.com": 0, "namespaces": 2, "customresourcedefinitions.apiextensions.k8s.io": 0}},
		"or-selectors that overlap": {spec: velerov1.BackupSpec{OrLabelSelectors: []*metav1.LabelSelector{
			{MatchLabels: map[string]string{"app": "x"}},
			{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "In", Values: []string{"x", "y"}}}}}},
			want: map[string]int{"configmaps": 200, "widgets.example.com": 0, "namespaces": 2}},
		"old filter": {spec: velerov1.BackupSpec{IncludedResources: []string{"widgets", "nodes"}, IncludeClusterResources: &yes},
			want: map[string]int{"configmaps": 0, "widgets.example.com": 2, "nodes": 1, "namespaces": 0, "customresourcedefinitions.apiextensions.k8s.io": 1}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := newSetup(t, estate(), tt.spec, tt.namespaces...)
			res, err := Run(t.Context(), s.cfg, s.job)
			require.NoError(t, err)
			got := s.read(t, res)
			for r, n := range tt.want {
				require.Equal(t, n, got.of(r), r)
			}
			require.Len(t, got.items, res.Items)
			require.Equal(t, got.items, slices.Compact(slices.Clone(got.items)), "nothing twice")
			require.Zero(t, res.Errors, got.at(joblog.Error))
			require.Equal(t, Counts{Items: res.Items, Total: res.Items}, s.job.Progress.Read())
			left, err := os.ReadDir(s.job.Dir)
			require.NoError(t, err)
			require.Empty(t, left, "no work file is left")
		})
	}
}

func TestObjectsThatAreNotTaken(t *testing.T) {
	api := estate()
	api.Add("configmaps",
		apifake.Object{Namespace: "a", Name: "excluded", Labels: map[string]string{selection.LabelExclude: "true"}},
		apifake.Object{Namespace: "a", Name: "going", Deleting: true})
	api.Add("namespaces", apifake.Object{Name: "ending", Body: map[string]any{"status": map[string]string{"phase": "Terminating"}}})
	s := newSetup(t, api, velerov1.BackupSpec{})
	res, err := Run(t.Context(), s.cfg, s.job)
	require.NoError(t, err)
	got := s.read(t, res)
	require.Equal(t, 300, got.of("configmaps"))
	require.Equal(t, 3, got.of("namespaces"))
}

func TestErrorsCostOneKindOrObject(t *testing.T) {
	api := estate()
	api.DeadGroups = []string{"dead.example.com"}
	s := apifake.New(append(slices.Clone(kinds), apifake.Kind{Group: "broken.example.com", Version: "v1", Kind: "Broken",
		Resource: "brokens", Namespaced: true, Custom: true, Dead: true})...)
	s.DeadGroups = api.DeadGroups
	s.Add("namespaces", apifake.Object{Name: "a"})
	s.Add("configmaps", apifake.Object{Namespace: "a", Name: "fine"})
	s.Add("pods", apifake.Object{Namespace: "a", Name: "hooked", Annotations: map[string]string{
		"pre.hook.backup.velero.io/command": "x", "pre.hook.backup.velero.io/container": "c",
		"post.hook.backup.velero.io/timeout": "5s", "backup.velero.io/backup-volumes": "v1, v2"}})
	st := newSetup(t, s, velerov1.BackupSpec{IncludedNamespaces: []string{"a", "gone"}}, "a", "gone")
	res, err := Run(t.Context(), st.cfg, st.job)
	require.NoError(t, err)
	got := st.read(t, res)
	require.Equal(t, 1, got.of("configmaps"))
	require.Equal(t, 1, got.of("pods"), "a pod with hooks is stored")
	errs := strings.Join(got.at(joblog.Error), "\n")
	for _, want := range []string{
		"API group dead.example.com/v1 does not answer",
		"brokens.broken.example.com", "namespaces gone/gone",
		"pods a/hooked: annotation pre.hook.backup.velero.io/command",
		"pods a/hooked: annotation post.hook.backup.velero.io/timeout",
		`data of volume "v1"`, `data of volume "v2"`,
	} {
		require.Contains(t, errs, want)
	}
	require.Equal(t, 7, res.Errors, errs)
}

// Events are the same objects in two groups: a backup of those of one group alone ended
// with none of them, since they counted as seen in the other.
func TestEventsByTheirOtherGroup(t *testing.T) {
	events := func(group string) apifake.Kind {
		return apifake.Kind{Group: group, Version: "v1", Kind: "Event", Resource: "events", Namespaced: true}
	}
	for name, want := range map[string]string{"events.events.k8s.io": "events.events.k8s.io", "events": "events", "*": "events"} {
		api := apifake.New(append(slices.Clone(kinds), events(""), events("events.k8s.io"))...)
		for _, resource := range []string{"events", "events.events.k8s.io"} {
			api.Add(resource, apifake.Object{Namespace: "a", Name: "e1"})
		}
		s := newSetup(t, api, velerov1.BackupSpec{IncludedResources: []string{name}})
		res, err := Run(t.Context(), s.cfg, s.job)
		require.NoError(t, err)
		got := s.read(t, res)
		require.Equal(t, []string{"resources/" + want + "/namespaces/a/e1.json"}, got.items, name)
	}
}

// A group that does not answer costs a backup nothing that cannot select from it.
func TestADeadGroupThatTheFilterLeavesOut(t *testing.T) {
	for name, errors := range map[string]int{"configmaps": 0, "gizmos": 1} {
		api := estate()
		api.DeadGroups = []string{"dead.example.com"}
		s := newSetup(t, api, velerov1.BackupSpec{IncludedResources: []string{name, "configmaps"}})
		res, err := Run(t.Context(), s.cfg, s.job)
		require.NoError(t, err)
		require.Equal(t, errors, res.Errors, name)
		got := s.read(t, res)
		require.Equal(t, 300, got.of("configmaps"))
		require.Len(t, slices.DeleteFunc(got.at(joblog.Info), func(m string) bool { return !strings.Contains(m, "dead.example.com") }), 1-errors)
	}
}

func TestReferencesReachTheManifest(t *testing.T) {
	api := estate()
	api.Add("pods", apifake.Object{Namespace: "a", Name: "p", Body: map[string]any{"spec": map[string]any{
		"serviceAccountName": "sa", "volumes": []any{map[string]any{"name": "v", "configMap": map[string]string{"name": "cm-000"}}}}}})
	many := make([]any, reference.Max+1)
	for i := range many {
		many[i] = map[string]any{"configMap": map[string]string{"name": fmt.Sprintf("cm-%04d", i)}}
	}
	api.Add("pods", apifake.Object{Namespace: "b", Name: "many", Body: map[string]any{"spec": map[string]any{"volumes": many}}},
		apifake.Object{Namespace: "b", Name: "odd", Body: map[string]any{"spec": map[string]any{"serviceAccountName": 5}}})
	s := newSetup(t, api, velerov1.BackupSpec{})
	res, err := Run(t.Context(), s.cfg, s.job)
	require.NoError(t, err)
	require.Zero(t, res.Errors)
	require.Zero(t, res.Warnings)
	got := s.read(t, res)
	definition := []manifest.Reference{{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition", Name: "widgets.example.com", Relation: reference.DefinedBy}}
	const cut = "resources/pods/namespaces/b/many.json"
	require.Len(t, got.references[cut], reference.Max)
	require.Contains(t, got.at(joblog.Info), "pods b/many: the manifest names the first 1000 of the objects this one refers to")
	delete(got.references, cut)
	require.Equal(t, map[string][]manifest.Reference{
		"resources/pods/namespaces/a/p.json": {
			{Kind: "ConfigMap", Namespace: "a", Name: "cm-000", Relation: reference.Mounts},
			{Kind: "ServiceAccount", Namespace: "a", Name: "sa", Relation: reference.RunsAs},
		},
		"resources/widgets.example.com/namespaces/a/w1.json": definition,
		"resources/widgets.example.com/namespaces/a/w2.json": definition,
	}, got.references)
}

func TestClaimsAreListedAsSkipped(t *testing.T) {
	no := false
	for _, choice := range []*bool{nil, &no} {
		api := estate()
		api.Add("persistentvolumeclaims",
			apifake.Object{Namespace: "a", Name: "bound", Body: map[string]any{"spec": map[string]string{"volumeName": "pv1"}}},
			apifake.Object{Namespace: "b", Name: "unbound"})
		s := newSetup(t, api, velerov1.BackupSpec{SnapshotVolumes: choice})
		res, err := Run(t.Context(), s.cfg, s.job)
		require.NoError(t, err)
		got := s.read(t, res)
		volumes := 0
		for _, rec := range got.records {
			for _, v := range rec.Volumes {
				volumes++
				require.True(t, v.Skipped)
				require.NotEmpty(t, v.SkippedReason)
				require.Equal(t, map[string]string{"bound": "pv1", "unbound": ""}[v.PVCName], v.PVName)
			}
		}
		require.Equal(t, 2, volumes)
		if choice == nil {
			require.Equal(t, 2, res.Warnings)
			require.Len(t, got.at(joblog.Warning), 2)
		} else {
			require.Zero(t, res.Warnings, "who chose not to take volumes is not warned")
		}
	}
}

// A claim without its volume would wait for it for ever after a restore.
func TestVolumesComeWithTheirClaims(t *testing.T) {
	no := false
	for name, tt := range map[string]struct {
		spec   velerov1.BackupSpec
		claims int
		want   int
	}{
		"one by one":          {claims: 3, want: 3},
		"in one list":         {claims: namedLists + 1, want: namedLists + 1},
		"excluded by name":    {spec: velerov1.BackupSpec{ExcludedResources: []string{"persistentvolumes"}}, claims: 3},
		"no cluster objects":  {spec: velerov1.BackupSpec{IncludeClusterResources: &no}, claims: 3},
		"not among resources": {spec: velerov1.BackupSpec{IncludedResources: []string{"persistentvolumeclaims"}}, claims: 2, want: 2},
	} {
		t.Run(name, func(t *testing.T) {
			api := estate()
			for i := range tt.claims {
				pv := fmt.Sprintf("pv-%02d", i)
				api.Add("persistentvolumes", apifake.Object{Name: pv}, apifake.Object{Name: "other-" + pv})
				api.Add("persistentvolumeclaims", apifake.Object{Namespace: "a", Name: fmt.Sprintf("c-%02d", i),
					Body: map[string]any{"spec": map[string]string{"volumeName": pv}}})
			}
			api.Add("persistentvolumeclaims", apifake.Object{Namespace: "b", Name: "elsewhere",
				Body: map[string]any{"spec": map[string]string{"volumeName": "other-pv-00"}}})
			tt.spec.IncludedNamespaces = []string{"a"}
			s := newSetup(t, api, tt.spec, "a")
			res, err := Run(t.Context(), s.cfg, s.job)
			require.NoError(t, err)
			got := s.read(t, res)
			require.Equal(t, tt.claims, got.of("persistentvolumeclaims"))
			require.Equal(t, tt.want, got.of("persistentvolumes"), got.items)
			require.NotContains(t, strings.Join(got.items, "\n"), "other-pv")
		})
	}
}

func TestCompactedRevision(t *testing.T) {
	api := estate()
	pages := 0
	api.Before = func(s *apifake.Server, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/configmaps") {
			if pages++; pages == 4 || pages == 9 {
				s.CompactLocked()
			}
		}
	}
	s := newSetup(t, api, velerov1.BackupSpec{})
	res, err := Run(t.Context(), s.cfg, s.job)
	require.NoError(t, err)
	require.GreaterOrEqual(t, api.Gone(), 2)
	got := s.read(t, res)
	require.Equal(t, 300, got.of("configmaps"))
	require.Equal(t, 2, got.of("widgets.example.com"))
	require.Zero(t, res.Errors, got.at(joblog.Error))
	requireContiguous(t, got.records, "configmaps")
	require.GreaterOrEqual(t, len(s.job.Cut.Revisions()), 2)
}

// requireContiguous checks that the ranges of a unit cover it without a gap.
func requireContiguous(t *testing.T, records []checkpoint.Record, unit string) {
	t.Helper()
	var ranges []checkpoint.Range
	for _, rec := range records {
		for _, r := range rec.Ranges {
			if r.Unit == unit {
				ranges = append(ranges, r)
			}
		}
	}
	slices.SortFunc(ranges, func(a, b checkpoint.Range) int { return strings.Compare(a.Last, b.Last) })
	after, revisions := "", map[string]bool{}
	for _, r := range ranges {
		require.Equal(t, after, r.After)
		after = r.Last
		revisions[r.Revision] = true
	}
	require.True(t, ranges[len(ranges)-1].Done)
	require.GreaterOrEqual(t, len(revisions), 2, "the record says what is of which revision")
}

func TestCutOff(t *testing.T) {
	s := newSetup(t, estate(), velerov1.BackupSpec{})
	s.job.Cut = cut.New(nil, false)
	res, err := Run(t.Context(), s.cfg, s.job)
	require.NoError(t, err)
	require.Equal(t, 300, s.read(t, res).of("configmaps"))
}

func TestFencedRunStops(t *testing.T) {
	s := newSetup(t, estate(), velerov1.BackupSpec{})
	_, err := checkpoint.Open(t.Context(), s.store, "b1", "uid-1", 2)
	require.NoError(t, err)
	_, err = Run(t.Context(), s.cfg, s.job)
	require.ErrorIs(t, err, journal.ErrFenced)
}

func TestBrokenBucketEndsTheJob(t *testing.T) {
	s := newSetup(t, estate(), velerov1.BackupSpec{})
	broken := errors.New("bucket is broken")
	s.store.Inject(func(op memstore.Op, key string) error {
		if op == memstore.OpCreate && strings.Contains(key, "-w") {
			return broken
		}
		return nil
	})
	_, err := Run(t.Context(), s.cfg, s.job)
	require.ErrorIs(t, err, broken)
	left, err := os.ReadDir(s.job.Dir)
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestCancelledRunStops(t *testing.T) {
	lost := errors.New("claim lost")
	ctx, cancel := context.WithCancelCause(t.Context())
	api := estate()
	api.Before = func(_ *apifake.Server, r *http.Request) {
		if strings.Contains(r.URL.RawQuery, "continue") {
			cancel(lost)
		}
	}
	s := newSetup(t, api, velerov1.BackupSpec{})
	_, err := Run(ctx, s.cfg, s.job)
	require.ErrorIs(t, err, lost)
}
