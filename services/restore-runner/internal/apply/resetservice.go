package apply

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit"
)

const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// resetService lets the API server assign addresses and node ports anew. A headless Service stays
// headless, and node ports that were asked for stay.
func resetService(obj object, o *ResetOptions) {
	spec := childObject(obj, "spec")
	if spec == nil {
		return
	}
	if textOf(spec, "clusterIP") != "None" && !o.PreserveAddresses {
		dropKeys(spec, "clusterIP", "clusterIPs")
	}
	if o.PreserveNodePorts || o.PreserveAddresses {
		return
	}
	asked := askedPorts(obj)
	if !asked.healthCheck {
		dropKeys(spec, "healthCheckNodePort")
	}
	for _, port := range objectList(spec, "ports") {
		if !asked.hasPort(port) {
			dropKeys(port, "nodePort")
		}
	}
}

// ServicePorts tells of a stored Service whether a restore keeps node ports of it, and whether the API server
// chooses others anew.
func ServicePorts(raw []byte) (kept, chosen bool) {
	if !bytes.Contains(raw, []byte(`odePort"`)) {
		return false, false
	}
	obj, err := jsonlimit.UnmarshalObject(raw)
	if err != nil {
		return false, false
	}
	stored := nodePorts(obj)
	resetService(obj, &ResetOptions{})
	left := nodePorts(obj)
	return left > 0, left < stored
}

// nodePorts counts the node ports of a Service.
func nodePorts(obj object) (n int) {
	spec := childObject(obj, "spec")
	if spec["healthCheckNodePort"] != nil {
		n++
	}
	for _, port := range objectList(spec, "ports") {
		if port["nodePort"] != nil {
			n++
		}
	}
	return n
}

// explicitPorts is what the owners of a Service wrote down explicitly.
type explicitPorts struct {
	named       map[string]bool  // by port name
	numbered    map[float64]bool // by node port
	keyed       map[portKey]bool // by service port and protocol
	healthCheck bool
	address     bool // the cluster IP
}

func newExplicitPorts() *explicitPorts {
	return &explicitPorts{named: map[string]bool{}, numbered: map[float64]bool{}, keyed: map[portKey]bool{}}
}

// portKey is the merge key of the ports of a Service in managed fields.
type portKey struct {
	port     float64
	protocol string
}

func (p *explicitPorts) hasPort(port object) bool {
	return p.named[textOf(port, "name")] || p.numbered[numberOf(port["nodePort"])] || p.keyed[newPortKey(port)]
}

func newPortKey(port object) portKey {
	protocol := textOf(port, "protocol")
	if protocol == "" {
		protocol = "TCP"
	}
	return portKey{numberOf(port["port"]), protocol}
}

// numberOf returns a JSON number however it was decoded; anything else is 0, which is no port.
func numberOf(v any) float64 {
	switch n := v.(type) {
	case int64:
		return float64(n)
	case float64:
		return n
	}
	return 0
}

// askedPorts reads the explicit values from the last applied configuration and the managed fields.
// The API server's own allocations appear in neither.
func askedPorts(obj object) *explicitPorts {
	p := newExplicitPorts()
	meta := childObject(obj, "metadata")
	var applied object
	if raw := textOf(childObject(meta, "annotations"), lastApplied); raw != "" && json.Unmarshal([]byte(raw), &applied) == nil {
		p.addApplied(childObject(applied, "spec"))
	}
	for _, entry := range objectList(meta, "managedFields") {
		p.addManaged(childObject(entry, "fieldsV1", "f:spec"))
	}
	return p
}

func (p *explicitPorts) addApplied(spec object) {
	if numberOf(spec["healthCheckNodePort"]) != 0 {
		p.healthCheck = true
	}
	for _, port := range objectList(spec, "ports") {
		n := numberOf(port["nodePort"])
		if n == 0 {
			continue
		}
		p.numbered[n] = true
		if name := textOf(port, "name"); name != "" {
			p.named[name] = true
		}
	}
}

// addManaged reads the set of fields of one manager: keys are "k:" and the JSON of a list element's
// key fields.
func (p *explicitPorts) addManaged(spec object) {
	if _, ok := spec["f:healthCheckNodePort"]; ok {
		p.healthCheck = true
	}
	if _, ok := spec["f:clusterIP"]; ok {
		p.address = true
	}
	list := childObject(spec, "f:ports")
	for k := range list {
		raw, isKey := strings.CutPrefix(k, "k:")
		if _, explicit := childObject(list, k)["f:nodePort"]; !isKey || !explicit {
			continue
		}
		var port object
		if json.Unmarshal([]byte(raw), &port) == nil {
			p.keyed[newPortKey(port)] = true
		}
	}
}

const (
	managedBySlice = "endpointslice.kubernetes.io/managed-by"
	// sliceMirror makes an EndpointSlice of Endpoints.
	sliceMirror = "endpointslicemirroring-controller.k8s.io"
)

// MirroredEndpoints returns the Endpoints that a stored EndpointSlice is made from; false for every other one.
func MirroredEndpoints(obj map[string]any) (endpoints string, ok bool) {
	labels := childObject(obj, "metadata", "labels")
	return textOf(labels, "kubernetes.io/service-name"), textOf(labels, managedBySlice) == sliceMirror
}

// resetSlice takes the mark off that makes the controller delete an EndpointSlice without Endpoints.
func resetSlice(obj object, _ *ResetOptions) {
	if _, ok := MirroredEndpoints(obj); ok {
		dropKeys(childObject(obj, "metadata", "labels"), managedBySlice)
	}
}
