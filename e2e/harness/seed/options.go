package seed

import (
	"io"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Label and LabelValue mark every object of the sample estate, cluster-scoped ones included.
const (
	Label      = "app.kubernetes.io/part-of"
	LabelValue = "holdfast-sample"
	// Group is the API group of the estate's custom resources.
	Group = "sample.holdfast.io"
)

// DefaultPrefix starts the names of the estate's namespaces and cluster-scoped objects.
const DefaultPrefix = "holdfast-demo"

// Options changes how the estate is made. The zero value is fine.
type Options struct {
	Prefix  string    // of namespaces and cluster-scoped objects; DefaultPrefix when empty
	Writers int       // parallel creates; 16 when 0
	Log     io.Writer // progress; nil is silent
}

func (o Options) withDefaults() Options {
	if o.Prefix == "" {
		o.Prefix = DefaultPrefix
	}
	if o.Writers <= 0 {
		o.Writers = 16
	}
	if o.Log == nil {
		o.Log = io.Discard
	}
	return o
}

// teams name the namespaces.
var teams = []string{"shop", "bank", "media", "garden"}

// Namespaces returns the names of the estate's four namespaces.
func (o Options) Namespaces() []string {
	o = o.withDefaults()
	names := make([]string, 0, len(teams))
	for _, team := range teams {
		names = append(names, o.Prefix+"-"+team)
	}
	return names
}

// Selector is the label selector that matches every object of the estate.
func Selector() string { return Label + "=" + LabelValue }

// objectMeta is the metadata of a namespaced object, labelled as part of the estate.
func objectMeta(namespace, name string, labels ...string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: withLabels(labels...)}
}

// withLabels returns the estate's label and the given ones ("key=value").
func withLabels(labels ...string) map[string]string {
	all := map[string]string{Label: LabelValue}
	for _, label := range labels {
		key, value, _ := strings.Cut(label, "=")
		all[key] = value
	}
	return all
}
