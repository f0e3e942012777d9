package restore_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/archive/nativesnapshot"
	"github.com/holdfast-io/holdfast/pkg/archive/volumedata"
	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit/limittest"
	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
	"github.com/holdfast-io/holdfast/pkg/kube/objmeta"
	"github.com/holdfast-io/holdfast/pkg/kube/resource"
	"github.com/holdfast-io/holdfast/pkg/spec/selection"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/dispatch"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/pausing"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/plan"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/volumes"
)

type object = map[string]any

const restoreUID types.UID = "5c1a0b53-1f0d-4a44-a1a3-6d0b8a1c9e10"

// backup is a source of objects in memory.
type backup struct {
	items  []manifest.Item
	bodies map[string][]byte
	// snapshots are the native snapshots of its volumes.
	snapshots []nativesnapshot.Snapshot
	// elsewhere is volume data that is not restored.
	elsewhere []volumedata.Data
	// infos are the volume information.
	infos []volumes.Info
	// csi has claims be filled from CSI snapshots.
	csi bool
	// pauses are the rules by which objects are created paused.
	pauses plan.PauseRules
	// records is the directory that its restore records in; empty is a new one.
	records string
}

func (b *backup) Items(context.Context) iter.Seq2[manifest.Item, error] {
	return func(yield func(manifest.Item, error) bool) {
		for _, i := range b.items {
			if !yield(i, nil) {
				return
			}
		}
	}
}

func (b *backup) Read(_ context.Context, item manifest.Item) ([]byte, error) {
	body, ok := b.bodies[item.Path]
	if !ok {
		return nil, fmt.Errorf("no %s", item.Path)
	}
	return body, nil
}

// addObject stores an object of a resource such as "deployments.apps" the way a backup finds it in a
// cluster.
func (b *backup) addObject(gr, apiVersion, kind, namespace, name string, fields object, owners ...object) {
	meta := object{"name": name, "uid": "old-" + name, "resourceVersion": "7", "creationTimestamp": "2020-01-01T00:00:00Z"}
	path := "resources/" + gr + "/cluster/" + name + ".json"
	if namespace != "" {
		meta["namespace"] = namespace
		path = "resources/" + gr + "/namespaces/" + namespace + "/" + name + ".json"
	}
	obj := object{"apiVersion": apiVersion, "kind": kind, "metadata": meta}
	for k, v := range fields {
		if k == "metadata" {
			for mk, mv := range v.(object) {
				meta[mk] = mv
			}
			continue
		}
		obj[k] = v
	}
	res, group, _ := strings.Cut(gr, ".")
	_, version, found := strings.Cut(apiVersion, "/")
	if !found {
		version = apiVersion
	}
	item := manifest.Item{Group: group, Version: version, Kind: kind, Resource: res, Namespace: namespace, Name: name, UID: "old-" + name, Path: path, Preferred: true}
	var refs []any
	for _, o := range owners {
		refs = append(refs, o)
		raw, _ := json.Marshal(o)
		var owner objmeta.Owner
		_ = json.Unmarshal(raw, &owner)
		item.Owners = append(item.Owners, owner)
	}
	if refs != nil {
		meta["ownerReferences"] = refs
	}
	if labels, ok := meta["labels"].(object); ok {
		item.Labels = map[string]string{}
		for k, v := range labels {
			item.Labels[k] = v.(string)
		}
	}
	raw, _ := json.Marshal(obj)
	item.Size = int64(len(raw))
	b.items = append(b.items, item)
	if b.bodies == nil {
		b.bodies = map[string][]byte{}
	}
	b.bodies[path] = raw
}

func ownerBy(apiVersion, kind, name string, controller bool) object {
	return object{"apiVersion": apiVersion, "kind": kind, "name": name, "uid": "old-" + name, "controller": controller}
}

// finishedRestore is a restore that ran.
type finishedRestore struct {
	recorder *outcome.Recorder
	records  string // directory
	list     map[string][]string
	results  struct{ Warnings, Errors restoreResults }
}

type restoreResults struct {
	Velero, Cluster []string
	Namespaces      map[string][]string
}

func (r restoreResults) allMessages() string {
	out := slices.Concat(r.Velero, r.Cluster)
	for _, m := range r.Namespaces {
		out = append(out, m...)
	}
	return strings.Join(out, "\n")
}

func runRestore(t testing.TB, s *kubetest.Server, b *backup, spec velerov1.RestoreSpec, change ...func(*restore.Config)) *finishedRestore {
	t.Helper()
	return runAt(t, clock.RealClock{}, s, b, spec, change...)
}

// runAt is run by a clock of the test's.
func runAt(t testing.TB, clk clock.WithTicker, s *kubetest.Server, b *backup, spec velerov1.RestoreSpec, change ...func(*restore.Config)) *finishedRestore {
	t.Helper()
	survey, err := plan.ReadSurvey(t.Context(), b)
	require.NoError(t, err)
	volumes, err := volumes.Decide(t.Context(), survey.Volumes, b.Read, volumes.Taken{
		Snapshots: b.snapshots, Infos: b.infos, Elsewhere: b.elsewhere, Snapshotted: survey.Snapshots.Claims(), CSI: b.csi, Items: b.Items,
	}, spec.RestorePVs == nil || *spec.RestorePVs)
	require.NoError(t, err)
	catalog, err := resource.Discover(t.Context(), s.Config())
	require.NoError(t, err)
	filter, err := selection.NewFilter(selection.Spec{
		IncludedResources: spec.IncludedResources, ExcludedResources: spec.ExcludedResources, LabelSelector: spec.LabelSelector,
	}, []string{"*"}, survey.Resolver(catalog))
	require.NoError(t, err)
	p, err := plan.Build(t.Context(), b, plan.Config{Filter: filter, Mapping: spec.NamespaceMapping, Claim: volumes.Claim, Reserve: true,
		Read:   func(item manifest.Item) ([]byte, error) { return b.Read(t.Context(), item) },
		Paused: func(kind schema.GroupKind) bool { return b.pauses.For(kind) != nil }})
	require.NoError(t, err)
	f := &finishedRestore{recorder: outcome.NewRecorder(outcome.NewLog(io.Discard, "velero/r"), clk, 10, t.TempDir()), records: cmp.Or(b.records, t.TempDir())}
	f.recorder.SetPlan(p)
	f.recorder.Planned(&outcome.Planned{})
	stored := keepRecords(t, f.recorder, f.records)
	config := restore.Config{
		Request: restore.Request{Backup: "b", Restore: "r", UID: restoreUID, Spec: &spec, Server: "velero"},
		Content: restore.Content{Plan: p, Source: b, Volumes: volumes, Pauses: b.pauses, Snapshots: survey.Snapshots},
		Cluster: restore.Cluster{REST: s.Config(), Catalog: catalog, Clock: clk, TerminatingTimeout: 5 * time.Second, ResourceTimeout: 5 * time.Second},
		Records: restore.Records{Recorder: f.recorder, History: &outcome.History{}},
	}
	for _, c := range change {
		c(&config)
	}
	objects := pausing.Objects{UID: config.UID, Recorder: config.Recorder, REST: config.REST, Clock: config.Clock, Confirm: config.Confirm}
	require.NoError(t, restore.Run(t.Context(), config))
	require.NoError(t, objects.Resume(t.Context()))
	stored()
	var list, messages bytes.Buffer
	require.NoError(t, f.recorder.Files().WriteResourceList(&list))
	require.NoError(t, json.Unmarshal(list.Bytes(), &f.list), list.String())
	require.NoError(t, f.recorder.Files().WriteResults(&messages))
	require.NoError(t, json.Unmarshal(messages.Bytes(), &f.results))
	require.Equal(t, f.recorder.Counts().Total, f.recorder.Counts().Done)
	return f
}

// keepRecords stores what is recorded until the returned function is called or the test ends.
func keepRecords(t testing.TB, r *outcome.Recorder, path string) (stop func()) {
	dir := &outcome.Dir{Path: path}
	done := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		for {
			select {
			case <-done:
				if err := r.Flush(context.WithoutCancel(t.Context()), dir); err != nil {
					t.Error(err)
				}
				return
			case <-r.Wanted():
				if err := r.Flush(t.Context(), dir); err != nil {
					t.Error(err)
				}
			}
		}
	})
	stop = sync.OnceFunc(func() { close(done); group.Wait() })
	t.Cleanup(stop)
	return stop
}

func addDefinition(b *backup) {
	b.addObject("customresourcedefinitions.apiextensions.k8s.io", "apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "widgets.example.com", object{
		"spec": object{"group": "example.com", "scope": "Namespaced", "names": object{"plural": "widgets", "kind": "Widget"},
			"versions": []any{object{"name": "v1"}}}})
}

func TestEverythingComesBack(t *testing.T) {
	s, b := kubetest.Start(t), &backup{}
	b.addObject("namespaces", "v1", "Namespace", "", "a", object{"metadata": object{"labels": object{"team": "x"}}})
	addDefinition(b)
	b.addObject("widgets.example.com", "example.com/v1", "Widget", "a", "w", nil)
	b.addObject("configmaps", "v1", "ConfigMap", "a", "c", object{"data": object{"k": "v"}}, ownerBy("example.com/v1", "Widget", "w", true))
	b.addObject("configmaps", "v1", "ConfigMap", "bare", "c", nil)
	b.addObject("deployments.apps", "apps/v1", "Deployment", "a", "d", nil)
	b.addObject("replicasets.apps", "apps/v1", "ReplicaSet", "a", "rs", nil, ownerBy("apps/v1", "Deployment", "d", true))
	b.addObject("pods", "v1", "Pod", "a", "p", object{"status": object{"phase": "Running"}}, ownerBy("apps/v1", "ReplicaSet", "rs", true))
	b.addObject("pods", "v1", "Pod", "a", "done", object{"status": object{"phase": "Succeeded"}})

	f := runRestore(t, s, b, velerov1.RestoreSpec{})
	require.Empty(t, f.results.Errors.allMessages())
	require.Empty(t, f.results.Warnings.allMessages())
	require.Equal(t, map[string][]string{
		"v1/Namespace": {"a(created)"}, "apiextensions.k8s.io/v1/CustomResourceDefinition": {"widgets.example.com(created)"},
		"example.com/v1/Widget": {"a/w(created)"}, "v1/ConfigMap": {"a/c(created)", "bare/c(created)"},
		"apps/v1/Deployment": {"a/d(created)"}, "apps/v1/ReplicaSet": {"a/rs(created)"}, "v1/Pod": {"a/done(skipped)", "a/p(created)"},
	}, f.list)
	require.Equal(t, object{"team": "x"}, kubetest.Meta(s.Object("/api/v1/namespaces/a"))["labels"], "namespaces carry no restore labels")
	c := kubetest.Meta(s.Object("/api/v1/namespaces/a/configmaps/c"))
	require.Equal(t, object{"velero.io/backup-name": "b", "velero.io/restore-name": "r"}, c["labels"])
	owner := c["ownerReferences"].([]any)[0].(object)
	require.Equal(t, s.UID("/apis/example.com/v1/namespaces/a/widgets/w"), owner["uid"])
	require.Equal(t, true, owner["controller"])
	for _, adopted := range []string{"/api/v1/namespaces/a/pods/p", "/apis/apps/v1/namespaces/a/replicasets/rs"} {
		require.Nil(t, kubetest.Meta(s.Object(adopted))["ownerReferences"], "its controller adopts it")
	}
	posts := s.Requests("POST ")
	place := func(suffix string) int {
		return slices.IndexFunc(posts, func(r string) bool { return strings.HasSuffix(r, suffix) })
	}
	require.Less(t, place("/pods"), place("/replicasets"))
	require.Less(t, place("/replicasets"), place("/deployments"))
	require.Less(t, place("/customresourcedefinitions"), place("/v1/namespaces"))
	require.Less(t, place("/v1/namespaces"), place("/configmaps"))
}

func TestOwnersAddedLater(t *testing.T) {
	s, b := kubetest.Start(t), &backup{}
	b.addObject("cronjobs.batch", "batch/v1", "CronJob", "a", "cron", nil)
	b.addObject("jobs.batch", "batch/v1", "Job", "a", "job", nil, ownerBy("batch/v1", "CronJob", "cron", true))
	b.addObject("pods", "v1", "Pod", "a", "jobpod", nil, ownerBy("batch/v1", "Job", "job", true))
	b.addObject("configmaps", "v1", "ConfigMap", "a", "one", nil, ownerBy("v1", "ConfigMap", "two", false))
	b.addObject("configmaps", "v1", "ConfigMap", "a", "two", nil, ownerBy("v1", "ConfigMap", "one", false))
	b.addObject("configmaps", "v1", "ConfigMap", "a", "orphan", nil, ownerBy("v1", "Widget", "absent", false))

	f := runRestore(t, s, b, velerov1.RestoreSpec{})
	require.Empty(t, f.results.Errors.allMessages())
	job := kubetest.Meta(s.Object("/apis/batch/v1/namespaces/a/jobs/job"))["ownerReferences"].([]any)[0].(object)
	require.Equal(t, s.UID("/apis/batch/v1/namespaces/a/cronjobs/cron"), job["uid"])
	for child, owner := range map[string]string{"one": "two", "two": "one"} {
		refs := kubetest.Meta(s.Object("/api/v1/namespaces/a/configmaps/" + child))["ownerReferences"].([]any)
		require.Equal(t, s.UID("/api/v1/namespaces/a/configmaps/"+owner), refs[0].(object)["uid"], "both halves of a cycle")
	}
	require.Nil(t, kubetest.Meta(s.Object("/api/v1/namespaces/a/configmaps/orphan"))["ownerReferences"])
	require.Nil(t, s.Object("/api/v1/namespaces/a/pods/jobpod"))
	require.Equal(t, []string{"a/jobpod(skipped)"}, f.list["v1/Pod"])
	warnings := f.results.Warnings.allMessages()
	require.Contains(t, warnings, "owner reference to Widget absent dropped")
	require.Contains(t, warnings, "jobpod: not restored: Job job, which is restored")
	require.Contains(t, warnings, "waits for its owner, which waits for it")
	require.Equal(t, 3, f.recorder.Counts().Warnings)
}

func TestFailedOwnerIsReported(t *testing.T) {
	s, b := kubetest.Start(t), &backup{}
	b.addObject("configmaps", "v1", "ConfigMap", "a", "owner", nil)
	b.addObject("secrets", "v1", "Secret", "a", "child", nil, ownerBy("v1", "ConfigMap", "owner", false))
	s.Fail(func(r *http.Request, body map[string]any) (int, bool) {
		if r.Method == http.MethodPost && kubetest.Meta(body)["name"] == "owner" {
			return http.StatusUnprocessableEntity, false
		}
		return 0, false
	})
	f := runRestore(t, s, b, velerov1.RestoreSpec{})
	require.Equal(t, 1, f.recorder.Counts().Errors)
	require.Contains(t, f.results.Errors.allMessages(), "configmaps a/owner: ")
	require.Contains(t, f.results.Warnings.allMessages(), "owner reference to ConfigMap owner dropped: the owner was not restored")
	require.Nil(t, kubetest.Meta(s.Object("/api/v1/namespaces/a/secrets/child"))["ownerReferences"])
	require.Equal(t, []string{"a/owner(failed)"}, f.list["v1/ConfigMap"])
}

func TestMappedNamespace(t *testing.T) {
	s, b := kubetest.Start(t), &backup{}
	b.addObject("namespaces", "v1", "Namespace", "", "a", object{"metadata": object{"labels": object{"kubernetes.io/metadata.name": "a"}}})
	b.addObject("configmaps", "v1", "ConfigMap", "a", "c", nil)
	b.addObject("rolebindings.rbac.authorization.k8s.io", "rbac.authorization.k8s.io/v1", "RoleBinding", "a", "rb",
		object{"subjects": []any{object{"kind": "ServiceAccount", "name": "sa", "namespace": "a"}}})
	f := runRestore(t, s, b, velerov1.RestoreSpec{NamespaceMapping: map[string]string{"a": "z"}})
	require.Empty(t, f.results.Errors.allMessages())
	require.Nil(t, s.Object("/api/v1/namespaces/a"))
	require.Equal(t, []string{"z(created)"}, f.list["v1/Namespace"])
	require.Equal(t, "z", kubetest.Meta(s.Object("/api/v1/namespaces/z/configmaps/c"))["namespace"])
	rb := s.Object("/apis/rbac.authorization.k8s.io/v1/namespaces/z/rolebindings/rb")
	require.Equal(t, "z", rb["subjects"].([]any)[0].(object)["namespace"])

	again := runRestore(t, s, b, velerov1.RestoreSpec{NamespaceMapping: map[string]string{"a": "z"}})
	require.Empty(t, again.results.Warnings.allMessages(), "what was restored is as in the backup")
	require.Equal(t, []string{"z/rb(skipped)"}, again.list["rbac.authorization.k8s.io/v1/RoleBinding"])
}

func TestBadObjectsCostOnlyThemselves(t *testing.T) {
	s, b := kubetest.Start(t), &backup{}
	b.addObject("configmaps", "v1", "ConfigMap", "a", "fine", nil)
	b.addObject("configmaps", "v1", "ConfigMap", "a", "broken", nil)
	b.bodies["resources/configmaps/namespaces/a/broken.json"] = []byte(`{"metadata":`)
	b.addObject("configmaps", "v1", "ConfigMap", "a", "missing", nil)
	delete(b.bodies, "resources/configmaps/namespaces/a/missing.json")
	b.addObject("configmaps", "v1", "ConfigMap", "a", "renamed", object{"metadata": object{"name": "other"}})
	b.addObject("configmaps", "v1", "ConfigMap", "a", "anonymous", nil)
	b.bodies["resources/configmaps/namespaces/a/anonymous.json"] = []byte(`[]`)
	b.addObject("configmaps", "v1", "ConfigMap", "a", "null", nil)
	b.bodies["resources/configmaps/namespaces/a/null.json"] = []byte(`null`)
	b.addObject("configmaps", "v1", "ConfigMap", "a", "dense", nil)
	b.bodies["resources/configmaps/namespaces/a/dense.json"] = limittest.Text(t, limittest.List(
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"dense","namespace":"a"},"data":[`, "{}", "]}", 6<<20))
	b.addObject("ghosts.example.com", "example.com/v1", "Ghost", "a", "g", nil)
	b.addObject("pods", "v1", "Pod", "a", "asking", object{"metadata": object{"annotations": object{"velero.io/restore-status": "true"}}})
	b.addObject("configmaps", "v1", "ConfigMap", "Bad_Namespace", "c", nil)
	f := runRestore(t, s, b, velerov1.RestoreSpec{})
	require.NotNil(t, s.Object("/api/v1/namespaces/a/configmaps/fine"))
	require.NotNil(t, s.Object("/api/v1/namespaces/a/pods/asking"))
	errs := f.results.Errors.allMessages()
	for _, want := range []string{"a/broken: decode", "a/missing: read from the backup", "a/renamed: metadata.name", "a/anonymous: decode", "a/null: metadata", "a/dense: decode: too many values",
		"the cluster does not serve ghosts.example.com", "annotation velero.io/restore-status", `"Bad_Namespace"`} {
		require.Contains(t, errs, want)
	}
	require.Equal(t, 10, f.recorder.Counts().Errors, errs)
}

func TestTerminatingNamespaceIsWaitedFor(t *testing.T) {
	s, b := kubetest.Start(t), &backup{}
	s.Put("/api/v1/namespaces/a", object{"metadata": object{"name": "a", "deletionTimestamp": "2026-01-01T00:00:00Z"}})
	b.addObject("configmaps", "v1", "ConfigMap", "a", "c", nil)
	var reads atomic.Int64
	s.Fail(func(r *http.Request, _ map[string]any) (int, bool) {
		if r.Method == http.MethodGet && r.URL.Path == "/api/v1/namespaces/a" && reads.Add(1) == 2 {
			s.Delete("/api/v1/namespaces/a")
		}
		return 0, false
	})
	f := runRestore(t, s, b, velerov1.RestoreSpec{})
	require.Empty(t, f.results.Errors.allMessages())
	require.NotNil(t, s.Object("/api/v1/namespaces/a/configmaps/c"))
}

func TestTakeoverGoesOn(t *testing.T) {
	s, b := kubetest.Start(t), &backup{}
	for i := range 40 {
		b.addObject("configmaps", "v1", "ConfigMap", "a", fmt.Sprintf("c%02d", i), object{"data": object{"k": fmt.Sprint(i)}})
	}
	ctx, cancel := context.WithCancel(t.Context())
	var once sync.Once
	var created atomic.Int64
	s.Fail(func(r *http.Request, _ map[string]any) (int, bool) {
		if strings.HasSuffix(r.URL.Path, "/configmaps") && created.Add(1) == 10 {
			once.Do(cancel)
		}
		return 0, false
	})
	survey, err := plan.ReadSurvey(ctx, b)
	require.NoError(t, err)
	require.False(t, survey.Empty())
	// The first holder dies in the middle.
	first := func(c *restore.Config) {
		require.ErrorIs(t, restore.Run(ctx, *c), context.Canceled)
		require.Less(t, c.Recorder.Counts().Done, c.Recorder.Counts().Total)
	}
	// The next one starts with the same plan and a recorder of its own.
	second := func(c *restore.Config) {
		s.Fail(nil)
		c.History = &outcome.History{Resumed: true}
		before := c.Recorder.Counts()
		require.Positive(t, before.Total)
		c.Recorder.SetPlan(c.Plan)
	}
	f := runRestore(t, s, b, velerov1.RestoreSpec{}, first, second)
	require.Empty(t, f.results.Errors.allMessages())
	require.Empty(t, f.results.Warnings.allMessages())
	require.Len(t, f.list["v1/ConfigMap"], 40)
	for _, entry := range f.list["v1/ConfigMap"] {
		require.True(t, strings.HasSuffix(entry, "(created)"), entry)
	}
}

// What is waited for when a stop comes has no outcome, and the restore is not complete, also when
// nothing else is left to do.
func TestAStopInTheLastWaitIsNoEnd(t *testing.T) {
	for name, prepare := range map[string]func(*kubetest.Server, *backup){
		"definition": func(_ *kubetest.Server, b *backup) { addDefinition(b) },
		"namespace": func(s *kubetest.Server, b *backup) {
			s.Put("/api/v1/namespaces/a", object{"metadata": object{"name": "a", "deletionTimestamp": "2026-01-01T00:00:00Z"}})
			b.addObject("namespaces", "v1", "Namespace", "", "a", nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, b := kubetest.Start(t), &backup{}
			prepare(s, b)
			stop := make(chan struct{})
			var created atomic.Bool
			var once sync.Once
			s.Fail(func(r *http.Request, _ map[string]any) (int, bool) {
				if r.Method == http.MethodPost {
					created.Store(true)
				}
				if !created.Load() || r.Method != http.MethodGet {
					return 0, false
				}
				once.Do(func() { close(stop) })
				if strings.Contains(r.URL.Path, "/customresourcedefinitions/") {
					return http.StatusNotFound, false // not established yet
				}
				return 0, false
			})
			runRestore(t, s, b, velerov1.RestoreSpec{}, func(c *restore.Config) {
				stopped := *c
				stopped.Stop = stop
				require.ErrorIs(t, restore.Run(t.Context(), stopped), dispatch.ErrStopped)
				require.Zero(t, c.Recorder.Counts().Done)
				s.Fail(nil)
				s.Delete("/api/v1/namespaces/a")
				c.History = &outcome.History{Resumed: true}
			})
		})
	}
}

func TestAppliersKeepTheirFields(t *testing.T) {
	s, b := kubetest.Start(t), &backup{}
	fields := func(operation string) object {
		return object{"metadata": object{"managedFields": []any{object{"manager": "m", "operation": operation, "fieldsV1": object{}}}}}
	}
	b.addObject("configmaps", "v1", "ConfigMap", "a", "applied", fields("Apply"))
	b.addObject("configmaps", "v1", "ConfigMap", "a", "updated", fields("Update"))
	runRestore(t, s, b, velerov1.RestoreSpec{})
	require.Equal(t, "m", kubetest.Meta(s.Object("/api/v1/namespaces/a/configmaps/applied"))["managedFields"].([]any)[0].(object)["manager"])
	require.Equal(t, []string{"m", "holdfast-restore-" + string(restoreUID)}, s.Managers("/api/v1/namespaces/a/configmaps/applied"),
		"a successor recognizes the object also between the write and the record of its outcome")
	require.Equal(t, []string{"PATCH /api/v1/namespaces/a/configmaps/applied"}, s.Requests("PATCH "), "nothing else costs a second request")
}

func TestVolumes(t *testing.T) {
	s, b := kubetest.Start(t), &backup{}
	volumeOf := func(name, policy, claim string) {
		b.addObject("persistentvolumes", "v1", "PersistentVolume", "", name, object{"spec": object{"persistentVolumeReclaimPolicy": policy,
			"claimRef": object{"namespace": "a", "name": claim, "uid": "u"}}})
		b.addObject("persistentvolumeclaims", "v1", "PersistentVolumeClaim", "a", claim, object{"spec": object{"volumeName": name}})
	}
	volumeOf("kept", "Retain", "kept-claim")
	volumeOf("gone", "Delete", "new-claim")
	f := runRestore(t, s, b, velerov1.RestoreSpec{})
	require.Empty(t, f.results.Errors.allMessages())
	require.Equal(t, []string{"gone(skipped)", "kept(created)"}, f.list["v1/PersistentVolume"])
	require.Equal(t, object{"namespace": "a", "name": "kept-claim"}, s.Object("/api/v1/persistentvolumes/kept")["spec"].(object)["claimRef"])
	require.Equal(t, object{"volumeName": "kept"}, s.Object("/api/v1/namespaces/a/persistentvolumeclaims/kept-claim")["spec"])
	require.Equal(t, object{}, s.Object("/api/v1/namespaces/a/persistentvolumeclaims/new-claim")["spec"])
}

// A backup of Velero without volume information lists its PodVolumeBackups and operations in files
// of their own. A claim whose data is in those came up empty in a restore that was Completed, and
// so does one whose volume the backup does not hold.
func TestVolumeDataThatIsNotRestoredIsAnErrorOfItsClaim(t *testing.T) {
	s, b := kubetest.Start(t), &backup{}
	claim := func(namespace, name, volume string) {
		spec := object{}
		if volume != "" {
			spec["volumeName"] = volume
		}
		b.addObject("persistentvolumeclaims", "v1", "PersistentVolumeClaim", namespace, name, object{"spec": spec})
	}
	b.addObject("persistentvolumes", "v1", "PersistentVolume", "", "pv-kept", object{"spec": object{"persistentVolumeReclaimPolicy": "Retain",
		"claimRef": object{"namespace": "a", "name": "kept", "uid": "u"}}})
	claim("a", "kept", "pv-kept")
	claim("a", "moved", "")
	claim("a", "fine", "")
	b.addObject("pods", "v1", "Pod", "a", "p", object{"spec": object{"volumes": []any{
		object{"name": "scratch", "emptyDir": object{}}, object{"name": "data", "persistentVolumeClaim": object{"claimName": "old"}}}}})
	b.elsewhere = []volumedata.Data{
		{Method: volumedata.PodVolumeBackup, Namespace: "a", Claim: "kept", Pod: "p", PodVolume: "v", Stored: true},
		{Method: volumedata.DataUpload, Namespace: "a", Claim: "moved", Stored: true},
		{Method: volumedata.PodVolumeBackup, Namespace: "a", Pod: "p", PodVolume: "scratch"},
		{Method: volumedata.PodVolumeBackup, Namespace: "a", Pod: "p", PodVolume: "data"},
		{Method: volumedata.DataUpload, Namespace: "b", Claim: "fine"},
	}
	f := runRestore(t, s, b, velerov1.RestoreSpec{NamespaceMapping: map[string]string{"a": "c"}})
	errs := f.results.Errors.Namespaces["c"]
	require.Len(t, errs, 4, errs)
	for _, want := range []string{
		"volume pv-kept: its data is in a PodVolumeBackup, which the backup does not list",
		"moved CSI snapshot of the claim: annotation velero.io/data-upload-name of the claim in the backup: not namespace/name of a DataUpload",
		"volume scratch of the pod: its data is in a PodVolumeBackup", "volume data of the pod, claim old: its data is in a PodVolumeBackup",
	} {
		require.Contains(t, strings.Join(errs, "\n"), want)
	}
	require.Equal(t, []string{"pv-kept(skipped)"}, f.list["v1/PersistentVolume"])
	require.Equal(t, object{}, s.Object("/api/v1/namespaces/c/persistentvolumeclaims/kept")["spec"], "a new volume")
	require.NotNil(t, s.Object("/api/v1/namespaces/c/pods/p"))
}
