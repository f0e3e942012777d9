package manifest

import "github.com/holdfast-io/holdfast/pkg/kube/objmeta"

const (
	// maxAnnotation is the longest annotation value published.
	maxAnnotation = 1 << 10
	// lastApplied is kubectl apply's copy of the whole object, for Secrets with their data.
	lastApplied = "kubectl.kubernetes.io/last-applied-configuration"
)

// secretAnnotations are the annotations of Secrets whose values are published: names of other
// objects, never content.
var secretAnnotations = map[string]bool{
	"kubernetes.io/service-account.name": true,
	"kubernetes.io/service-account.uid":  true,
	"meta.helm.sh/release-name":          true,
	"meta.helm.sh/release-namespace":     true,
	"cert-manager.io/certificate-name":   true,
	"cert-manager.io/issuer-name":        true,
	"cert-manager.io/issuer-kind":        true,
	"cert-manager.io/issuer-group":       true,
}

// hidesValue reports whether an annotation's value is stored as length and hash only.
func hidesValue(p objmeta.Pair, secret bool) bool {
	return p.Key == lastApplied || len(p.Value) > maxAnnotation || secret && !secretAnnotations[p.Key]
}
