package apply

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// InjectionConfigMap is the name of the ConfigMap in the server namespace that adds rules: each key of its
// data holds one as YAML.
const InjectionConfigMap = "holdfast-restore-injected"

// InjectionRule names what an injector adds to Pods. A "*" at the end of a name stands for any text.
type InjectionRule struct {
	// Containers are containers and init containers.
	Containers []string `json:"containers,omitempty"`
	// Volumes come with their mounts.
	Volumes     []string `json:"volumes,omitempty"`
	Variables   []string `json:"variables,omitempty"`
	Annotations []string `json:"annotations,omitempty"`
}

// InjectionRules are rules, of which any may name a thing.
type InjectionRules []InjectionRule

// BuiltinInjections are the rules of injectors that are widely used: Istio, Linkerd, Vault's agent, Bank-Vaults,
// the OpenTelemetry operator, AWS, Azure, Consul, Dapr, Kuma and Open Service Mesh.
var BuiltinInjections = InjectionRules{
	{Containers: []string{"istio-proxy", "istio-init", "istio-validation"},
		Volumes: []string{"istio-*", "workload-socket", "workload-certs", "credential-socket"}, Annotations: []string{"sidecar.istio.io/status", "istio.io/rev"}},
	{Containers: []string{"linkerd-proxy", "linkerd-init", "linkerd-network-validator", "linkerd-debug"}, Volumes: []string{"linkerd-*"},
		Annotations: []string{"linkerd.io/created-by", "linkerd.io/proxy-version", "linkerd.io/trust-root-sha256"}},
	{Containers: []string{"vault-agent", "vault-agent-init"}, Volumes: []string{"home-init", "home-sidecar", "vault-secrets", "vault-tls-secrets", "vault-config"},
		Annotations: []string{"vault.hashicorp.com/agent-inject-status"}},
	{Containers: []string{"copy-vault-env"}, Volumes: []string{"vault-env"}},
	{Containers: []string{"otc-container", "opentelemetry-auto-instrumentation*"}, Volumes: []string{"opentelemetry-auto-instrumentation*"},
		Variables: []string{"OTEL_*"}},
	{Volumes: []string{"aws-iam-token", "eks-pod-identity-token"}, Variables: []string{"AWS_ROLE_ARN", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_STS_REGIONAL_ENDPOINTS",
		"AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"}},
	{Containers: []string{"azwi-proxy", "azwi-proxy-init"}, Volumes: []string{"azure-identity-token"},
		Variables: []string{"AZURE_CLIENT_ID", "AZURE_TENANT_ID", "AZURE_FEDERATED_TOKEN_FILE", "AZURE_AUTHORITY_HOST"}},
	{Containers: []string{"consul-dataplane", "consul-connect-inject-init"}, Volumes: []string{"consul-connect-inject-data"}, Annotations: []string{"consul.hashicorp.com/connect-inject-status"}},
	{Containers: []string{"daprd"}, Volumes: []string{"dapr-*"}},
	{Containers: []string{"kuma-sidecar", "kuma-init", "kuma-validation"}, Volumes: []string{"kuma-sidecar-tmp", "kuma-init-tmp"}},
	// What an earlier restore added to a Pod, to wait for the data of its volumes.
	{Containers: []string{"restore-wait"}, Volumes: []string{"restore-wait"}},
	{Containers: []string{"envoy", "osm-init"}, Volumes: []string{"envoy-bootstrap-config-volume"}},
}

// ParseInjectionRules returns the rules of a ConfigMap's data, the built-in ones too, and one error for each
// key that holds none.
func ParseInjectionRules(data map[string]string) (rules InjectionRules, errs []error) {
	for _, key := range slices.Sorted(maps.Keys(data)) {
		var r InjectionRule
		if err := yaml.UnmarshalStrict([]byte(data[key]), &r); err != nil {
			errs = append(errs, fmt.Errorf("ConfigMap %s: data[%s]: %w", InjectionConfigMap, key, err))
			continue
		}
		rules = append(rules, r)
	}
	return append(rules, BuiltinInjections...), errs
}

func containerNames(r *InjectionRule) []string  { return r.Containers }
func volumeNames(r *InjectionRule) []string     { return r.Volumes }
func variableNames(r *InjectionRule) []string   { return r.Variables }
func annotationNames(r *InjectionRule) []string { return r.Annotations }

// namesThing reports that a rule has a name in the list that of returns.
func (rs InjectionRules) namesThing(of func(*InjectionRule) []string, name string) bool {
	for i := range rs {
		for _, known := range of(&rs[i]) {
			if prefix, wild := strings.CutSuffix(known, "*"); known == name || wild && strings.HasPrefix(name, prefix) {
				return true
			}
		}
	}
	return false
}

// injectedPart is something of a stored Pod that admission adds again.
type injectedPart struct{ kind, name string }

// quotedValue is the value in a refusal of kube-apiserver 1.36 because it is there twice.
var quotedValue = regexp.MustCompile(`^(?:Duplicate value: "([^"]*)"|Invalid value: "([^"]*)": must be unique)`)

var containerLists = []string{"containers", "initContainers"}

// dropInjected removes from a Pod what the API server refuses since it is there twice, and a rule names.
func (rs InjectionRules) dropInjected(spec object, causes []metav1.StatusCause) (dropped []injectedPart) {
	for _, cause := range causes {
		m := quotedValue.FindStringSubmatch(cause.Message)
		if m == nil {
			continue
		}
		part, found := injectedPart{name: m[1] + m[2]}, false
		reject := func(key string) func(object) bool {
			return func(o object) bool {
				hit := textOf(o, key) == part.name && (part.kind != "mount" || rs.namesThing(volumeNames, textOf(o, "name")))
				found = found || hit
				return !hit
			}
		}
		switch {
		case strings.HasSuffix(cause.Field, ".mountPath"):
			part.kind = "mount"
			eachContainer(spec, func(c object) { filterList(c, "volumeMounts", reject("mountPath")) })
		case strings.HasPrefix(cause.Field, "spec.volumes[") && rs.namesThing(volumeNames, part.name):
			part.kind = "volume"
			filterList(spec, "volumes", reject("name"))
		case strings.HasSuffix(cause.Field, "].name") && strings.Count(cause.Field, "[") == 1 && rs.namesThing(containerNames, part.name):
			part.kind = "container"
			for _, list := range containerLists {
				filterList(spec, list, reject("name"))
			}
		}
		if found {
			dropped = append(dropped, part)
		}
	}
	return dropped
}

// namedParts returns the volumes and containers of a Pod that rules name: they may be left out of its creation.
func (rs InjectionRules) namedParts(spec object) (parts []injectedPart) {
	collect := func(kind, list string, of func(*InjectionRule) []string) {
		for _, element := range objectList(spec, list) {
			if name := textOf(element, "name"); rs.namesThing(of, name) {
				parts = append(parts, injectedPart{kind, name})
			}
		}
	}
	collect("volume", "volumes", volumeNames)
	for _, list := range containerLists {
		collect("container", list, containerNames)
	}
	return parts
}

func eachContainer(spec object, do func(container object)) {
	for _, list := range containerLists {
		for _, c := range objectList(spec, list) {
			do(c)
		}
	}
}

// lacksPart reports that a live Pod does not have what was left out of its creation.
func lacksPart(spec object, part injectedPart) bool {
	found := false
	look := func(list []object, key string) {
		found = found || slices.ContainsFunc(list, func(o object) bool { return textOf(o, key) == part.name })
	}
	switch part.kind {
	case "mount":
		eachContainer(spec, func(c object) { look(objectList(c, "volumeMounts"), "mountPath") })
	case "volume":
		look(objectList(spec, "volumes"), "name")
	default:
		for _, list := range containerLists {
			look(objectList(spec, list), "name")
		}
	}
	return !found
}

// settleInjected gives a stored Pod, or the template of one, what injectors added to the live one in place of what
// they had added to it.
func (rs InjectionRules) settleInjected(want, live object) {
	spec, liveSpec := childObject(want, "spec"), childObject(live, "spec")
	if spec == nil || liveSpec == nil || len(rs) == 0 {
		return
	}
	rs.followParts(spec, liveSpec, "volumes", volumeNames)
	for _, list := range containerLists {
		rs.followParts(spec, liveSpec, list, containerNames)
		for _, container := range objectList(spec, list) {
			for _, now := range objectList(liveSpec, list) {
				if now["name"] == container["name"] {
					rs.followParts(container, now, "volumeMounts", volumeNames)
					rs.followParts(container, now, "env", variableNames)
				}
			}
		}
	}
	for _, side := range []object{want, live} {
		for key := range childObject(side, "metadata", "annotations") {
			if rs.namesThing(annotationNames, key) {
				followAnnotation(want, live, key)
			}
		}
	}
}

// followParts replaces the elements of a list that a rule names by those of the live list, at their places.
func (rs InjectionRules) followParts(to, live object, key string, of func(*InjectionRule) []string) {
	named := func(element any) bool {
		member, ok := element.(object)
		return ok && rs.namesThing(of, textOf(member, "name"))
	}
	parts := slices.DeleteFunc(slices.Clone(listAt(to, key)), named)
	for i, element := range listAt(live, key) {
		if named(element) {
			parts = slices.Insert(parts, min(i, len(parts)), cloneValue(element))
		}
	}
	if to[key] = parts; len(parts) == 0 {
		delete(to, key)
	}
}

// settleTemplates does it for the templates of a workload. An annotation in the live template shows that an
// injector wrote there: people write containers and variables of such names themselves.
func (rs InjectionRules) settleTemplates(want, live object) {
	for _, path := range templatePaths {
		stored, now := objectsAt(want, path[:len(path)-1]...), objectsAt(live, path[:len(path)-1]...)
		for i := range min(len(stored), len(now)) {
			annotations := childObject(now[i], "metadata", "annotations")
			var active InjectionRules
			for _, rule := range rs {
				if slices.ContainsFunc(rule.Annotations, func(key string) bool { return annotations[key] != nil }) {
					active = append(active, rule)
				}
			}
			active.settleInjected(stored[i], now[i])
		}
	}
}
