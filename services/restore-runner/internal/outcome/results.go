package outcome

import (
	"encoding/json"
	"io"
)

// Results are the messages of <restore>-results.gz (Velero 1.18).
type Results struct {
	Warnings Messages `json:"warnings"`
	Errors   Messages `json:"errors"`
}

// Messages are filed by what they are about.
type Messages struct {
	Velero     []string            `json:"velero,omitempty"`
	Cluster    []string            `json:"cluster,omitempty"`
	Namespaces map[string][]string `json:"namespaces,omitempty"`
}

// scope is where a message is filed: about the restore, about a namespace, or else about the cluster.
type scope struct {
	velero    bool
	namespace string
}

func (m *Messages) add(s scope, message string) {
	switch {
	case s.velero:
		m.Velero = append(m.Velero, message)
	case s.namespace == "":
		m.Cluster = append(m.Cluster, message)
	default:
		if m.Namespaces == nil {
			m.Namespaces = map[string][]string{}
		}
		m.Namespaces[s.namespace] = append(m.Namespaces[s.namespace], message)
	}
}

// WriteResults writes the messages so far as one JSON document.
func (r *Recorder) WriteResults(w io.Writer) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return json.NewEncoder(w).Encode(r.results)
}
