package flight

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
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/object"
)

var (
	mutatingGVR   = schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "mutatingwebhookconfigurations"}
	namespacesGVR = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
)

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

// WebhooksConfig is what webhooks are looked at with.
type WebhooksConfig struct {
	Plan     *plan.Plan
	Recorder *outcome.Recorder
	Source   object.Source
	Existing *object.LiveReader
	Names    *object.Names
}

// LateWebhooks are the mutating webhooks of a restore that were not in the cluster before it. Safe for
// concurrent use.
type LateWebhooks struct {
	WebhooksConfig
	all []mutatingWebhook

	mu         sync.Mutex
	namespaces map[string]labels.Set // of the cluster
}

// FindLateWebhooks finds the mutating webhooks that come with the restore.
func FindLateWebhooks(ctx context.Context, cfg WebhooksConfig) *LateWebhooks {
	l := &LateWebhooks{WebhooksConfig: cfg, namespaces: map[string]labels.Set{}}
	kinds := l.Plan.Kinds()
	if !slices.ContainsFunc(kinds, func(k plan.Kind) bool { return k.GroupResource() == mutatingGVR.GroupResource() }) {
		return l
	}
	for v := range int32(l.Plan.Len()) {
		if l.Plan.Kind(v).GroupResource() != mutatingGVR.GroupResource() || !l.Recorder.Concerns(v) || l.Existing.Before(ctx, l.Names.Target(v)) {
			continue
		}
		raw, err := l.Source.Read(ctx, l.Plan.Item(v))
		var config admissionv1.MutatingWebhookConfiguration
		if err != nil || jsonlimit.Unmarshal(raw, &config, jsonlimit.Object) != nil {
			continue // its own outcome reports it
		}
		for i := range config.Webhooks {
			hook := &config.Webhooks[i]
			space, err := metav1.LabelSelectorAsSelector(orEverything(hook.NamespaceSelector))
			object, more := metav1.LabelSelectorAsSelector(orEverything(hook.ObjectSelector))
			if errors.Join(err, more) == nil {
				l.all = append(l.all, mutatingWebhook{config.Name, hook, space, object})
			}
		}
	}
	return l
}

// orEverything is what no selector means here.
func orEverything(s *metav1.LabelSelector) *metav1.LabelSelector {
	if s == nil {
		return &metav1.LabelSelector{}
	}
	return s
}

// Warn warns of a workload that was created before a webhook that would have changed it,
// or the Pods that are made of it. Conditions of a webhook in CEL count as met.
func (l *LateWebhooks) Warn(ctx context.Context, e *outcome.Entry, o *object.Object) {
	gr := o.Kind.GroupResource()
	template, ok := workloads[gr]
	if !ok || len(l.all) == 0 || o.Controlled() {
		return
	}
	for i := range l.all {
		j := &l.all[i]
		what := ""
		switch pods := findPodTemplate(o.Body, template); {
		case j.isAskedAbout(gr, o.Body):
			what = "it"
		case template != nil && pods != nil && j.isAskedAbout(schema.GroupResource{Resource: "pods"}, pods):
			what = "its Pods"
		}
		if what == "" || !j.space.Matches(l.namespaceLabels(ctx, o.Target.Namespace)) {
			continue
		}
		e.Warn(fmt.Sprintf("mutating webhook %q of %q comes after it, and would have changed %s: what it adds may be missing until the Pods are made anew",
			j.webhook.Name, j.name, what))
		return
	}
}

// findPodTemplate returns the template of the Pods of a workload.
func findPodTemplate(body map[string]any, path []string) map[string]any {
	for _, key := range path {
		body = object.MapAt(body, key)
	}
	return body
}

// isAskedAbout reports whether the webhook is asked about the creation of an object, whatever its
// namespace.
func (j *mutatingWebhook) isAskedAbout(gr schema.GroupResource, body map[string]any) bool {
	return slices.ContainsFunc(j.webhook.Rules, func(r admissionv1.RuleWithOperations) bool {
		return (slices.Contains(r.Operations, admissionv1.Create) || slices.Contains(r.Operations, admissionv1.OperationAll)) &&
			(slices.Contains(r.APIGroups, gr.Group) || slices.Contains(r.APIGroups, "*")) &&
			(slices.Contains(r.Resources, gr.Resource) || slices.Contains(r.Resources, "*") || slices.Contains(r.Resources, "*/*")) &&
			(r.Scope == nil || *r.Scope != admissionv1.ClusterScope)
	}) && j.object.Matches(object.LabelsOf(body))
}

// namespaceLabels returns the labels of a namespace of the cluster, which is read once.
func (l *LateWebhooks) namespaceLabels(ctx context.Context, name string) labels.Set {
	l.mu.Lock()
	set, known := l.namespaces[name]
	l.mu.Unlock()
	if known {
		return set
	}
	raw, err := l.Existing.Client.Get(ctx, apply.Target{GVR: namespacesGVR, Name: name})
	if err != nil && !apierrors.IsNotFound(err) {
		return nil
	}
	var namespace metav1.PartialObjectMetadata
	if err == nil && json.Unmarshal(raw, &namespace) != nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.namespaces[name] = namespace.Labels
	return namespace.Labels
}
