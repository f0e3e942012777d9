package holdfast

import (
	"slices"
	"strings"
)

// toolDomains are the domains of Argo CD's, Flux's and Helm's keys, and of what `kubectl apply
// --prune` goes by. Subdomains count.
var toolDomains = []string{"argoproj.io", "fluxcd.io", "helm.sh", "applyset.kubernetes.io"}

// lastApplied is what kubectl compares with; prune removes objects that have it.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// Labels with another use beside the tool's: Argo CD's default for tracking, and Helm's mark of
// ownership.
const (
	labelInstance  = "app.kubernetes.io/instance"
	labelManagedBy = "app.kubernetes.io/managed-by"
)

// isTrackingKey reports keys that only deployment tools use.
func isTrackingKey(key, _ string) bool {
	domain, _, found := strings.Cut(key, "/")
	return key == lastApplied || found && slices.ContainsFunc(toolDomains, func(tool string) bool {
		return domain == tool || strings.HasSuffix(domain, "."+tool)
	})
}

// isSharedKey reports labels that track the Schedule; in a template they are meant for the Backups.
func isSharedKey(key, _ string) bool { return key == labelInstance || key == labelManagedBy }

// isOwnKey reports Holdfast's annotations. All but the priority are about one object.
func isOwnKey(key, _ string) bool {
	return strings.HasPrefix(key, Prefix) && key != AnnotationPriority
}
