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
		rule("*", assigned, "metadata", "uid"),
		rule("*", assigned, "metadata", "resourceVersion"),
		rule("*", assigned, "metadata", "generation"),
		rule("*", assigned, "metadata", "creationTimestamp"),
		rule("*", "says who wrote a field and when", "metadata", "managedFields"),
		rule("*", "a restored object keeps the name that was generated", "metadata", "generateName"),
		rule("*", controlled, "status"),
		rule("*", "set by the restore", "metadata", "labels", "velero.io/backup-name"),
		rule("*", "set by the restore", "metadata", "labels", "velero.io/restore-name"),
		rule("Service", "allocated anew", "spec", "clusterIP"),
		rule("Service", "allocated anew", "spec", "clusterIPs", "*"),
		rule("Service", "allocated anew", "spec", "ports", "*", "nodePort"),
		rule("Service", "allocated anew", "spec", "healthCheckNodePort"),
		rule("Endpoints", controlled, "metadata", "annotations", "endpoints.kubernetes.io/last-change-trigger-time"),
		rule("PersistentVolume", "the claim's new identity", "spec", "claimRef", "uid"),
		rule("PersistentVolume", "the claim's new identity", "spec", "claimRef", "resourceVersion"),
		rule("Pod", "the scheduler's choice", "spec", "nodeName"),
		rule("Pod", "derived from the priority class", "spec", "priority"),
	}
	for _, kind := range []string{"PersistentVolume", "PersistentVolumeClaim"} {
		for _, key := range []string{"bind-completed", "bound-by-controller"} {
			rules = append(rules, rule(kind, controlled, "metadata", "annotations", "pv.kubernetes.io/"+key))
		}
	}
	for _, key := range []string{"controller-uid", "batch.kubernetes.io/controller-uid"} {
		rules = append(rules,
			rule("Job", "the Job's own UID", "spec", "selector", "matchLabels", key),
			rule("Job", "the Job's own UID", "spec", "template", "metadata", "labels", key),
			rule("Job", "the Job's own UID", "metadata", "labels", key))
	}
	for i := range rules {
		if rules[i].Kind == "Service" && strings.HasPrefix(rules[i].Path[1], "clusterIP") {
			rules[i].Unless = "None"
		}
	}
	return rules
}

func rule(kind, why string, path ...string) Rule { return Rule{Kind: kind, Path: path, Why: why} }

// apply removes the rule's field from an object.
func (r Rule) apply(object map[string]any) { r.remove(object, r.Path) }

func (r Rule) remove(node any, path []string) {
	switch typed := node.(type) {
	case map[string]any:
		if len(path) > 1 {
			r.remove(typed[path[0]], path[1:])
			return
		}
		if typed[path[0]] != r.Unless || r.Unless == "" {
			delete(typed, path[0])
		}
	case []any:
		for i, element := range typed {
			switch {
			case len(path) > 1:
				r.remove(element, path[1:])
			case r.Unless == "" || element != r.Unless:
				typed[i] = nil
			}
		}
	}
}
