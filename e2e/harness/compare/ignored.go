package compare

import (
	"strings"
)

// Rule names one field that is not compared, and why.
type Rule struct {
	Kind   string   // "*" means every kind
	Path   []string // "*" means every element of a list
	Unless string   // a value that is compared nevertheless
	Why    string
}

// String renders the rule for people.
func (r Rule) String() string {
	text := strings.Join(r.Path, ".")
	text = strings.ReplaceAll(text, ".*", "[]")
	if r.Unless != "" {
		text += " (unless " + r.Unless + ")"
	}
	return r.Kind + ": " + text + ": " + r.Why
}

const (
	assigned   = "given by the API server at creation"
	controlled = "written by controllers"
)

// Ignored returns the fixed list of fields that are not compared. Owner references are compared by
// apiVersion, kind, name and flags, and by whether the UID is that of the live owner, instead of by
// UID. Volumes named kube-api-access-… lose the random end of their name.
func Ignored() []Rule {
	rules := []Rule{
		newRule("*", assigned, "metadata", "uid"),
		newRule("*", assigned, "metadata", "resourceVersion"),
		newRule("*", assigned, "metadata", "generation"),
		newRule("*", assigned, "metadata", "creationTimestamp"),
		newRule("*", "says who wrote a field and when", "metadata", "managedFields"),
		newRule("*", "a restored object keeps the name that was generated", "metadata", "generateName"),
		newRule("*", controlled, "status"),
		newRule("*", "set by the restore", "metadata", "labels", "velero.io/backup-name"),
		newRule("*", "set by the restore", "metadata", "labels", "velero.io/restore-name"),
		newRule("Service", "allocated anew", "spec", "clusterIP"),
		newRule("Service", "allocated anew", "spec", "clusterIPs", "*"),
		newRule("Service", "allocated anew", "spec", "ports", "*", "nodePort"),
		newRule("Service", "allocated anew", "spec", "healthCheckNodePort"),
		newRule("Endpoints", controlled, "metadata", "annotations", "endpoints.kubernetes.io/last-change-trigger-time"),
		newRule("PersistentVolume", "the claim's new identity", "spec", "claimRef", "uid"),
		newRule("PersistentVolume", "the claim's new identity", "spec", "claimRef", "resourceVersion"),
		newRule("Pod", "the scheduler's choice", "spec", "nodeName"),
		newRule("Pod", "derived from the priority class", "spec", "priority"),
	}
	for _, kind := range []string{"PersistentVolume", "PersistentVolumeClaim"} {
		for _, key := range []string{"bind-completed", "bound-by-controller"} {
			rules = append(rules, newRule(kind, controlled, "metadata", "annotations", "pv.kubernetes.io/"+key))
		}
	}
	for _, key := range []string{"controller-uid", "batch.kubernetes.io/controller-uid"} {
		rules = append(rules,
			newRule("Job", "the Job's own UID", "spec", "selector", "matchLabels", key),
			newRule("Job", "the Job's own UID", "spec", "template", "metadata", "labels", key),
			newRule("Job", "the Job's own UID", "metadata", "labels", key))
	}
	for i := range rules {
		if rules[i].Kind == "Service" && strings.HasPrefix(rules[i].Path[1], "clusterIP") {
			rules[i].Unless = "None"
		}
	}
	return rules
}

func newRule(kind, why string, path ...string) Rule { return Rule{Kind: kind, Path: path, Why: why} }

// applyRule removes the rule's field from an object.
func (r Rule) applyRule(object map[string]any) { r.removeField(object, r.Path) }

func (r Rule) removeField(node any, path []string) {
	switch typed := node.(type) {
	case map[string]any:
		if len(path) > 1 {
			r.removeField(typed[path[0]], path[1:])
			return
		}
		if typed[path[0]] != r.Unless || r.Unless == "" {
			delete(typed, path[0])
		}
	case []any:
		for i, element := range typed {
			switch {
			case len(path) > 1:
				r.removeField(element, path[1:])
			case r.Unless == "" || element != r.Unless:
				typed[i] = nil
			}
		}
	}
}
