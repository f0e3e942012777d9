package restore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/plan"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/decoded"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/object"
)

var mutatingGVR = schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "mutatingwebhookconfigurations"}

// workloads are the kinds that are named when an injecting webhook comes after them, with the path
// to the template of their Pods; a Pod has none.
var workloads = map[schema.GroupResource][]string{
	{Resource: "pods"}:                       nil,
	{Resource: "replicationcontrollers"}:     {"spec", "template"},
	{Group: "apps", Resource: "deployments"}: {"spec", "template"}, {Group: "apps", Resource: "statefulsets"}: {"spec", "template"},
	{Group: "apps", Resource: "daemonsets"}: {"spec", "template"}, {Group: "apps", Resource: "replicasets"}: {"spec", "template"},
	{Group: "batch", Resource: "jobs"}: {"spec", "template"},
}

// mutatingWebhook is a mutating webhook of the restore, which comes after the workloads that it
// would change.
type mutatingWebhook struct {
	name    string
	webhook *admissionv1.MutatingWebhook
	space   labels.Selector
	object  labels.Selector
}

// mutatingWebhooks are the mutating webhooks of a restore that were not in the cluster before it.
type mutatingWebhooks struct {
	all []mutatingWebhook

	mu     sync.Mutex
	spaces map[string]labels.Set // of namespaces of the cluster
}

// findWebhooks finds the mutating webhooks that come with the restore.
func (r *run) findWebhooks(ctx context.Context) {
	r.mutatingWebhooks = &mutatingWebhooks{spaces: map[string]labels.Set{}}
	kinds := r.Plan.Kinds()
	if !slices.ContainsFunc(kinds, func(k plan.Kind) bool { return k.GroupResource() == mutatingGVR.GroupResource() }) {
		return
	}
	for v := range int32(r.Plan.Len()) {
		if r.Plan.Kind(v).GroupResource() != mutatingGVR.GroupResource() || !r.Recorder.Concerns(v) || r.existing.Before(ctx, r.names.Target(v)) {
			continue
		}
		raw, err := r.Source.Read(ctx, r.Plan.Item(v))
		var config admissionv1.MutatingWebhookConfiguration
		if err != nil || jsonlimit.Unmarshal(raw, &config, jsonlimit.Object) != nil {
			continue // its own outcome says so
		}
		for i := range config.Webhooks {
			hook := &config.Webhooks[i]
			space, err := metav1.LabelSelectorAsSelector(orEverything(hook.NamespaceSelector))
			object, more := metav1.LabelSelectorAsSelector(orEverything(hook.ObjectSelector))
			if errors.Join(err, more) == nil {
				r.mutatingWebhooks.all = append(r.mutatingWebhooks.all, mutatingWebhook{config.Name, hook, space, object})
			}
		}
	}
}

// orEverything is what no selector means here.
func orEverything(s *metav1.LabelSelector) *metav1.LabelSelector {
	if s == nil {
		return &metav1.LabelSelector{}
	}
	return s
}

// warnOfWebhooks warns of a workload that was created before a webhook that would have changed it,
// or the Pods that are made of it. Conditions of a webhook in CEL count as met.
func (r *run) warnOfWebhooks(ctx context.Context, e *outcome.Entry, it *object.Object) {
	gr := r.Plan.Kind(it.Node).GroupResource()
	template, ok := workloads[gr]
	if !ok || len(r.mutatingWebhooks.all) == 0 || it.Controlled() {
		return
	}
	for i := range r.mutatingWebhooks.all {
		j := &r.mutatingWebhooks.all[i]
		what := ""
		switch pods := podsOf(it.Body, template); {
		case j.changes(gr, it.Body):
			what = "it"
		case template != nil && pods != nil && j.changes(schema.GroupResource{Resource: "pods"}, pods):
			what = "its Pods"
		}
		if what == "" || !j.space.Matches(r.namespaceLabels(ctx, it.Target.Namespace)) {
			continue
		}
		e.Warn(fmt.Sprintf("mutating webhook %q of %q comes after it, and would have changed %s: what it adds may be missing until the Pods are made anew",
			j.webhook.Name, j.name, what))
		return
	}
}

// podsOf returns the template of the Pods of a workload.
func podsOf(body map[string]any, path []string) map[string]any {
	for _, key := range path {
		body = decoded.Object(body, key)
	}
	return body
}

// changes reports whether the webhook is asked about the creation of an object, whatever its
// namespace.
func (j *mutatingWebhook) changes(gr schema.GroupResource, body map[string]any) bool {
	return slices.ContainsFunc(j.webhook.Rules, func(r admissionv1.RuleWithOperations) bool {
		return (slices.Contains(r.Operations, admissionv1.Create) || slices.Contains(r.Operations, admissionv1.OperationAll)) &&
			(slices.Contains(r.APIGroups, gr.Group) || slices.Contains(r.APIGroups, "*")) &&
			(slices.Contains(r.Resources, gr.Resource) || slices.Contains(r.Resources, "*") || slices.Contains(r.Resources, "*/*")) &&
			(r.Scope == nil || *r.Scope != admissionv1.ClusterScope)
	}) && j.object.Matches(decoded.LabelsOf(body))
}

// namespaceLabels returns the labels of a namespace of the cluster, which is read once.
func (r *run) namespaceLabels(ctx context.Context, name string) labels.Set {
	r.mutatingWebhooks.mu.Lock()
	set, known := r.mutatingWebhooks.spaces[name]
	r.mutatingWebhooks.mu.Unlock()
	if known {
		return set
	}
	raw, err := r.client.Get(ctx, apply.Target{GVR: namespacesGVR, Name: name})
	if err != nil && !apierrors.IsNotFound(err) {
		return nil
	}
	var namespace metav1.PartialObjectMetadata
	if err == nil && json.Unmarshal(raw, &namespace) != nil {
		return nil
	}
	r.mutatingWebhooks.mu.Lock()
	defer r.mutatingWebhooks.mu.Unlock()
	r.mutatingWebhooks.spaces[name] = namespace.Labels
	return namespace.Labels
}
