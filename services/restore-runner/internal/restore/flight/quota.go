package flight

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/dispatch"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/plan"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/object"
)

var quotasGVR = schema.GroupVersionResource{Version: "v1", Resource: "resourcequotas"}

// QuotasConfig is what quotas are looked at with.
type QuotasConfig struct {
	Plan       *plan.Plan
	Recorder   *outcome.Recorder
	Client     *apply.Client
	Namespaces *object.TargetNamespaces
	Poller     object.Poller
}

// countedPatience is how long workloads wait for a quota to be in force.
const countedPatience = 5 * time.Second

// Quotas know which objects of the restore are in the cluster already, of the kinds that a ResourceQuota
// counts: the attempt to create such an object uses a place of the quota until the quota is counted
// again, and another object may need that place. Safe for concurrent use.
type Quotas struct {
	QuotasConfig
	read sync.Once
	hard map[string][]string // namespace -> what its quotas count

	mu      sync.Mutex
	listed  map[quotaScope]*sync.Once
	present []uint64 // a bit for each node
}

// quotaScope is a kind in a namespace of the cluster.
type quotaScope struct {
	kind      *plan.Kind
	namespace string
}

// NewQuotas returns the quotas of the cluster, which are read when the first object needs them.
func NewQuotas(cfg QuotasConfig) *Quotas {
	return &Quotas{QuotasConfig: cfg, hard: map[string][]string{}, listed: map[quotaScope]*sync.Once{}}
}

// AwaitCounted waits for some seconds until a created quota is in force, for which workloads wait: the API server
// heeds it once its controller has counted.
func (q *Quotas) AwaitCounted(ctx context.Context, o *object.Object) {
	if !q.Plan.Bounds(o.Node) {
		return
	}
	dispatch.RunOutsideLimit(ctx, func() {
		for end := q.Poller.Clock.Now().Add(countedPatience); q.Poller.Clock.Now().Before(end); {
			raw, err := q.Client.Get(ctx, o.Target)
			if err != nil {
				return
			}
			live, err := jsonlimit.UnmarshalObject(raw)
			if err != nil || len(object.MapAt(object.MapAt(live, "status"), "hard")) > 0 || q.Poller.Pause(ctx) != nil {
				return
			}
		}
	})
}

// Present reports that an object was in the cluster when its kind and namespace were listed. Only what
// a quota counts is listed, in namespaces that this process did not create.
func (q *Quotas) Present(ctx context.Context, o *object.Object) bool {
	namespace := o.Target.Namespace
	if namespace == "" || o.Kind != q.Plan.Kind(o.Node) || q.Namespaces.Created(namespace) {
		return false
	}
	q.read.Do(func() { q.readQuotas(ctx) })
	scope := quotaScope{o.Kind, namespace}
	gr := scope.kind.GroupResource()
	if !slices.ContainsFunc(q.hard[namespace], func(name string) bool { return countsKind(name, gr) }) {
		return false
	}
	q.mu.Lock()
	once, ok := q.listed[scope]
	if !ok {
		once = &sync.Once{}
		q.listed[scope] = once
	}
	q.mu.Unlock()
	once.Do(func() { q.listScope(ctx, scope, o.Target.GVR) })
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.present != nil && q.present[o.Node/64]&(1<<(o.Node%64)) != 0
}

// readQuotas reads what is counted in each namespace.
func (q *Quotas) readQuotas(ctx context.Context) {
	type quota struct {
		Metadata struct {
			Namespace string `json:"namespace"`
		} `json:"metadata"`
		Spec struct {
			Hard map[string]any `json:"hard"`
		} `json:"spec"`
	}
	err := apply.EachObject(ctx, q.Client, apply.Target{GVR: quotasGVR}, func(o *quota) {
		for name := range o.Spec.Hard {
			q.hard[o.Metadata.Namespace] = append(q.hard[o.Metadata.Namespace], name)
		}
	})
	q.reportFailure(ctx, "Failed to list ResourceQuotas; objects that exist may use a place of theirs for a moment", err)
}

// listScope marks the objects of the restore that are in the cluster.
func (q *Quotas) listScope(ctx context.Context, scope quotaScope, gvr schema.GroupVersionResource) {
	var sources []string
	for _, ns := range q.Plan.Namespaces() {
		if ns.Target == scope.namespace {
			sources = append(sources, ns.Source)
		}
	}
	err := q.Client.EachName(ctx, apply.Target{GVR: gvr, Namespace: scope.namespace}, func(name string) {
		for _, source := range sources {
			if v, ok := q.Plan.Find(scope.kind.String(), source, name); ok {
				q.markPresent(v)
			}
		}
	})
	q.reportFailure(ctx, fmt.Sprintf("Failed to list %s of namespace %q, which a ResourceQuota counts", scope.kind, scope.namespace), err)
}

func (q *Quotas) markPresent(v int32) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.present == nil {
		q.present = make([]uint64, q.Plan.Len()/64+1)
	}
	q.present[v/64] |= 1 << (v % 64)
}

// reportFailure writes a failure to the log of the restore: its objects are created first, as without a quota.
func (q *Quotas) reportFailure(ctx context.Context, what string, err error) {
	if err == nil || object.IsEnding(ctx, err) {
		return
	}
	e := q.Recorder.Begin(outcome.General)
	e.Info(fmt.Sprintf("%s: %v", what, err))
	e.Commit()
}

// countsKind reports that a quota for name, a key of spec.hard, counts objects of a kind
// (https://kubernetes.io/docs/concepts/policy/resource-quotas/).
func countsKind(name string, gr schema.GroupResource) bool {
	if counted, ok := strings.CutPrefix(name, "count/"); ok {
		return counted == gr.String()
	}
	if strings.Contains(name, ".deviceclass.resource.k8s.io/") {
		return gr.String() == "resourceclaims.resource.k8s.io"
	}
	if gr.Group != "" {
		return false
	}
	storage := name == "requests.storage" || strings.Contains(name, ".storageclass.storage.k8s.io/")
	switch gr.Resource {
	case "persistentvolumeclaims":
		return name == gr.Resource || storage
	case "services":
		return name == gr.Resource || strings.HasPrefix(name, "services.")
	case "pods":
		return name == gr.Resource || name == "cpu" || name == "memory" || name == "ephemeral-storage" || strings.HasPrefix(name, "hugepages-") ||
			strings.HasPrefix(name, "limits.") || strings.HasPrefix(name, "requests.") && !storage
	}
	return name == gr.Resource
}
