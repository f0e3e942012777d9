package job_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/job/jobtest"
	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

type object = map[string]any

// storeArchive stores objects as Velero's backup b: everything a restore has steps for.
func (b *bench) storeArchive(t *testing.T) {
	t.Helper()
	owner := func(apiVersion, kind, name string) object {
		return object{"apiVersion": apiVersion, "kind": kind, "name": name, "uid": "old-" + name}
	}
	b.storeBackup(t, []entry{
		{"namespaces", "v1", "Namespace", "", "a", nil, []any{owner("example.com/v1", "Tenant", "tenant")}},
		{"namespaces", "v1", "Namespace", "", "there", nil, nil},
		{"customresourcedefinitions.apiextensions.k8s.io", "apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "widgets.example.com", newDefinition("widgets", "Widget", "Namespaced"), nil},
		{"customresourcedefinitions.apiextensions.k8s.io", "apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "tenants.example.com", newDefinition("tenants", "Tenant", "Cluster"), nil},
		{"tenants.example.com", "example.com/v1", "Tenant", "", "tenant", nil, nil},
		{"widgets.example.com", "example.com/v1", "Widget", "a", "w", nil, nil},
		{"configmaps", "v1", "ConfigMap", "a", "owned", object{"data": object{"k": "v"}}, []any{owner("example.com/v1", "Widget", "w")}},
		{"customresourcedefinitions.apiextensions.k8s.io", "apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "gadgets.example.com", newDefinition("gadgets", "Gadget", "Namespaced"), nil},
		{"gadgets.example.com", "example.com/v1", "Gadget", "a", "g", object{"spec": object{"size": 1.0}}, nil},
		{"secrets", "v1", "Secret", "a", "gadget", object{"data": object{"k": "v"}}, []any{owner("example.com/v1", "Gadget", "g")}},
		{"configmaps", "v1", "ConfigMap", "a", "one", nil, []any{owner("v1", "ConfigMap", "two")}},
		{"configmaps", "v1", "ConfigMap", "a", "two", nil, []any{owner("v1", "ConfigMap", "one")}},
		{"configmaps", "v1", "ConfigMap", "a", "orphan", nil, []any{owner("v1", "Widget", "absent")}},
		{"configmaps", "v1", "ConfigMap", "bare", "c", nil, nil},
		{"configmaps", "v1", "ConfigMap", "Bad_Namespace", "c", nil, nil},
		{"configmaps", "v1", "ConfigMap", "there", "same", object{"data": object{"k": "v"}}, nil},
		{"configmaps", "v1", "ConfigMap", "there", "different", object{"data": object{"k": "v"}}, nil},
		{"serviceaccounts", "v1", "ServiceAccount", "there", "default", object{"imagePullSecrets": []any{object{"name": "pull"}}}, nil},
		{"configmaps", "v1", "ConfigMap", "a", "applied", object{"metadata": object{"managedFields": []any{object{"manager": "m", "operation": "Apply", "fieldsV1": object{}}}}}, nil},
		{"configmaps", "v1", "ConfigMap", "a", "refused", nil, nil},
		{"secrets", "v1", "Secret", "a", "child", nil, []any{owner("v1", "ConfigMap", "refused")}},
		{"cronjobs.batch", "batch/v1", "CronJob", "a", "cron", nil, nil},
		{"jobs.batch", "batch/v1", "Job", "a", "job", nil, []any{owner("batch/v1", "CronJob", "cron")}},
		{"pods", "v1", "Pod", "a", "jobpod", nil, []any{owner("batch/v1", "Job", "job")}},
		{"pods", "v1", "Pod", "a", "asking", object{"metadata": object{"annotations": object{"velero.io/restore-status": "true"}}}, nil},
	})
}

// entry is an object of a backup.
type entry struct {
	path, apiVersion, kind, namespace, name string
	fields                                  object
	owners                                  []any
}

// storeBackup stores objects as Velero's backup b.
func (b *bench) storeBackup(t *testing.T, entries []entry) {
	t.Helper()
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	archive := tar.NewWriter(zip)
	add := func(name string, body []byte) {
		require.NoError(t, archive.WriteHeader(&tar.Header{Name: name, Size: int64(len(body)), Mode: 0o755, Typeflag: tar.TypeReg}))
		_, err := archive.Write(body)
		require.NoError(t, err)
	}
	add("metadata/version", []byte("1.1.0\n"))
	for _, e := range entries {
		obj := object{"apiVersion": e.apiVersion, "kind": e.kind}
		maps.Copy(obj, e.fields)
		meta := kubetest.Meta(obj)
		meta["name"], meta["uid"] = e.name, "old-"+e.name
		place := "cluster"
		if e.namespace != "" {
			meta["namespace"], place = e.namespace, "namespaces/"+e.namespace
		}
		if e.owners != nil {
			meta["ownerReferences"] = e.owners
		}
		body, err := json.Marshal(obj)
		require.NoError(t, err)
		version := e.apiVersion[strings.LastIndex(e.apiVersion, "/")+1:]
		add("resources/"+e.path+"/"+place+"/"+e.name+".json", body)
		add("resources/"+e.path+"/"+version+"-preferredversion/"+place+"/"+e.name+".json", body)
	}
	require.NoError(t, errors.Join(archive.Close(), zip.Close()))
	require.NoError(t, objectstore.PutBytes(t.Context(), b.store, layout.BackupTarball("b"), out.Bytes()))
}

func newDefinition(plural, kind, scope string) object {
	return object{"spec": object{"group": "example.com", "scope": scope, "names": object{"plural": plural, "kind": kind},
		"versions": []any{object{"name": "v1"}}}}
}

// newScene is a restore with everything in it, into a cluster that has a part of it already.
func newScene(t *testing.T, policy velerov1.PolicyType) *bench {
	t.Helper()
	b := newBench(t)
	b.config.RecordBatch = 2 // so that deaths come before, between and after records
	b.storeArchive(t)
	b.createRestore(t, true, func(r *velerov1.Restore) { r.Spec.ExistingResourcePolicy = policy })
	b.pauseGadgets(t)
	b.cluster.Put("/api/v1/namespaces/there", object{"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": "there"}})
	put := func(kind, resource, name string, fields object) {
		obj := object{"apiVersion": "v1", "kind": kind, "metadata": object{"name": name, "namespace": "there"}}
		maps.Copy(obj, fields)
		b.cluster.Put("/api/v1/namespaces/there/"+resource+"/"+name, obj)
	}
	put("ConfigMap", "configmaps", "same", object{"data": object{"k": "v"}})
	put("ConfigMap", "configmaps", "different", object{"data": object{"k": "w"}})
	put("ServiceAccount", "serviceaccounts", "default", nil)
	b.cluster.Fail(refuseAdmission)
	return b
}

// refuseAdmission is an admission policy.
func refuseAdmission(r *http.Request, body map[string]any) (int, bool) {
	if r.Method == http.MethodPost && kubetest.Meta(body)["name"] == "refused" {
		return http.StatusUnprocessableEntity, false
	}
	return 0, false
}

// end is all that a restore leaves, comparable with that of another one.
type end struct {
	Phase                     velerov1.RestorePhase
	Progress                  velerov1.RestoreProgress
	Hooks                     velerov1.HookStatus
	Warnings, Errors          int
	List, Results, Operations string
	Log                       []string
	Objects                   map[string]string
}

var operationTime = regexp.MustCompile(`"(created|updated)":"[^"]*"`)

var logTime = regexp.MustCompile(`^time="[^"]*" `)

func (b *bench) readOutcome(t *testing.T) end {
	t.Helper()
	r := b.getRestore(t)
	require.NotNil(t, r.Status.Progress, r.Status.FailureReason)
	e := end{
		Phase: r.Status.Phase, Progress: *r.Status.Progress, Hooks: *r.Status.HookStatus, Warnings: r.Status.Warnings, Errors: r.Status.Errors,
		List: b.readGzip(t, layout.RestoreResourceList("r")), Operations: operationTime.ReplaceAllString(b.readGzip(t, layout.RestoreItemOperations("r")), ""), Objects: b.cluster.Content(),
	}
	var results any
	require.NoError(t, json.Unmarshal([]byte(b.readGzip(t, layout.RestoreResults("r"))), &results))
	sorted, err := json.Marshal(sortMessages(results))
	require.NoError(t, err)
	e.Results = string(sorted)
	for _, line := range strings.Split(strings.TrimSpace(b.readGzip(t, layout.RestoreLog("r"))), "\n") {
		if !strings.Contains(line, "restore goes on at epoch") {
			e.Log = append(e.Log, logTime.ReplaceAllString(line, ""))
		}
	}
	slices.Sort(e.Log)
	counts := func(level string) (n int) {
		for _, line := range e.Log {
			if strings.HasPrefix(line, "level="+level) {
				n++
			}
		}
		return n
	}
	require.Equal(t, []int{e.Warnings, e.Errors}, []int{counts("warning"), counts("error")}, "log and phase agree")
	return e
}

// sortMessages orders the messages of a results file: objects are restored in parallel.
func sortMessages(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k := range v {
			v[k] = sortMessages(v[k])
		}
	case []any:
		slices.SortFunc(v, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	}
	return v
}

// errDead is what a dead process gets from everything it calls: it has no effect any more.
var errDead = errors.New("dead")

// life is a process that dies at its k-th write, or at the first one to a path, before or right after it took effect;
// without both it is immortal.
type life struct {
	b      *bench
	claims *jobtest.Holder
	at     int
	path   string
	after  bool

	mu     sync.Mutex
	writes int
	what   string
	dead   bool
}

// countStep counts a write. before reports that it must not take effect, after that its answer is lost.
func (l *life) countStep(what string) (before, after bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead {
		return true, false
	}
	if l.writes++; l.writes != l.at && (l.path == "" || !strings.Contains(what, l.path)) {
		return false, false
	}
	l.dead, l.what = true, what
	l.claims.LoseClaim()
	return !l.after, l.after
}

func (l *life) isGone() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dead
}

// mortalStore is the bucket as seen by a process.
type mortalStore struct {
	objectstore.Store
	life *life
}

func (s mortalStore) write(key string, do func() error) error {
	before, after := s.life.countStep("bucket " + key)
	if before {
		return errDead
	}
	if err := do(); err != nil || !after {
		return err
	}
	return errDead
}

func (s mortalStore) Put(ctx context.Context, key string, r io.ReadSeeker, size int64) error {
	return s.write(key, func() error { return s.Store.Put(context.WithoutCancel(ctx), key, r, size) })
}

func (s mortalStore) Create(ctx context.Context, key string, r io.ReadSeeker, size int64) error {
	return s.write(key, func() error { return s.Store.Create(context.WithoutCancel(ctx), key, r, size) })
}

// mortalClient is the API server of the custom resources as seen by a process.
type mortalClient struct {
	client.Client
	life *life
}

func (c mortalClient) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	before, after := c.life.countStep("CR")
	if before {
		return errDead
	}
	if err := c.Client.Patch(context.WithoutCancel(ctx), obj, patch, opts...); err != nil || !after {
		return err
	}
	return errDead
}

// runLife runs the restore in a process of its own until it ends or dies.
func (b *bench) runLife(t *testing.T, at int, after bool) *life {
	t.Helper()
	return b.runMortal(t, &life{at: at, after: after})
}

// runMortal is runLife of a life with the write that it dies at.
func (b *bench) runMortal(t *testing.T, l *life) *life {
	t.Helper()
	l.b, l.claims = b, &jobtest.Holder{Name: fmt.Sprint("process of death ", l.at, l.path)}
	config := b.config
	config.Clock = quick{} // a killed process ends its retries soon
	config.WorkDir, config.Claims, config.Client = t.TempDir(), l.claims, mortalClient{b.client, l}
	config.Locations = &locations{store: mortalStore{b.locations.store, l}}
	config.Ended = func(context.Context, *velerov1.Restore) {}
	if config.Exec != nil {
		config.Exec = mortalExec{config.Exec, l}
	}
	var leave func()
	config.REST, leave = b.cluster.OpenFaultyDoor(func(r *http.Request, body map[string]any) (int, bool) {
		b.simulateKubelet(r)
		if status, drop := refuseAdmission(r, body); status != 0 || r.Method == http.MethodGet {
			return status, drop || l.isGone()
		}
		before, after := l.countStep(r.Method + " " + r.URL.Path + fmt.Sprint(kubetest.Meta(body)["name"]))
		if before {
			return http.StatusBadRequest, false
		}
		return 0, after
	})
	defer leave()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := newRunner(config).Run(ctx, "r", types.UID("uid-r"))
	if !l.isGone() {
		require.NoError(t, err)
	}
	return l
}

// testDeathAtEachWrite runs a scene in which a process dies at each of its writes, and another takes over.
func testDeathAtEachWrite(t *testing.T, policy velerov1.PolicyType, after bool, more func(t *testing.T, b *bench, k int)) {
	undisturbed := newScene(t, policy)
	whole := undisturbed.runLife(t, 0, false)
	want := undisturbed.readOutcome(t)
	require.Equal(t, velerov1.RestorePhasePartiallyFailed, want.Phase)
	require.Greater(t, whole.writes, 40)
	for k := 1; ; k += jobtest.WriteStride() {
		b := newScene(t, policy)
		first := b.runLife(t, k, after)
		if !first.isGone() {
			require.Greater(t, k, whole.writes-10-jobtest.WriteStride())
			return
		}
		more(t, b, k)
		b.runLife(t, 0, false)
		require.Equal(t, want, b.readOutcome(t), "death at write %d: %s", k, first.what)
		held, _, err := claim.Parse(b.getRestore(t))
		require.NoError(t, err)
		require.NotZero(t, held.Epoch)
	}
}

func TestDeathAtEachWriteEndsAsIfNothingHadHappened(t *testing.T) {
	t.Parallel()
	for name, policy := range map[string]velerov1.PolicyType{"leave": "", "update": velerov1.PolicyTypeUpdate} {
		for when, after := range map[string]bool{"before": false, "after": true} {
			t.Run(name+" "+when, func(t *testing.T) {
				t.Parallel()
				testDeathAtEachWrite(t, policy, after, func(*testing.T, *bench, int) {})
			})
		}
	}
}

func TestTwoDeathsInARow(t *testing.T) {
	t.Parallel()
	testDeathAtEachWrite(t, velerov1.PolicyTypeUpdate, true, func(t *testing.T, b *bench, k int) { b.runLife(t, 1+(k*7)%23, k%2 == 0) })
}
