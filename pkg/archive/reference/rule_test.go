package reference

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
)

// scopeOfKind is that of a cluster with a few kinds.
func scopeOfKind(kind schema.GroupKind) (namespaced, ok bool) {
	switch kind.String() {
	case "Node", "ClusterIssuer.cert-manager.io", "ProviderConfig.aws.upbound.io", "GatewayClass.gateway.networking.k8s.io":
		return false, true
	case "Secret", "ConfigMap", "Service", "Store.secrets.example.com", "Issuer.cert-manager.io", "PersistentVolumeClaim":
		return true, true
	}
	return false, false
}

// findNamed returns what an object of namespace "ns" names, without its definition.
func findNamed(t *testing.T, set *Set, group, kind, body string) []string {
	t.Helper()
	found, complete := set.For(schema.GroupVersionKind{Group: group, Version: "v1", Kind: kind}, "").Find("ns", []byte(body))
	require.True(t, complete)
	return referenceTexts(found)
}

func TestPublishedTypes(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		group, kind, body string
		want              []string
	}{
		"cluster": {"cluster.x-k8s.io", "Cluster", `{"spec":{"infrastructureRef":{"apiVersion":"infrastructure.cluster.x-k8s.io/v1beta1","kind":"DockerCluster","name":"c","namespace":"ns"},
			"controlPlaneRef":{"apiGroup":"controlplane.cluster.x-k8s.io","kind":"KubeadmControlPlane","name":"cp"},"topology":{"classRef":{"name":"quick","namespace":"classes"}}}}`,
			[]string{"builtOn KubeadmControlPlane.controlplane.cluster.x-k8s.io ns/cp", "builtOn DockerCluster.infrastructure.cluster.x-k8s.io ns/c", "madeFrom ClusterClass.cluster.x-k8s.io classes/quick"}},
		"machine": {"cluster.x-k8s.io", "Machine", `{"spec":{"clusterName":"c","bootstrap":{"dataSecretName":"data","configRef":{"apiGroup":"bootstrap.cluster.x-k8s.io","kind":"KubeadmConfig","name":"k"}}}}`,
			[]string{"belongsTo Cluster.cluster.x-k8s.io ns/c", "builtOn KubeadmConfig.bootstrap.cluster.x-k8s.io ns/k", "reads Secret ns/data"}},
		"resource set": {"addons.cluster.x-k8s.io", "ClusterResourceSet", `{"spec":{"resources":[{"kind":"Secret","name":"s"},{"kind":"ConfigMap","name":"c"},{"kind":"Secret"}]}}`,
			[]string{"reads ConfigMap ns/c", "reads Secret ns/s"}},
		"certificate":           {"cert-manager.io", "Certificate", `{"spec":{"secretName":"tls","issuerRef":{"name":"ca"}}}`, []string{"issuedBy Issuer.cert-manager.io ns/ca", "writes Secret ns/tls"}},
		"of a cluster's issuer": {"cert-manager.io", "Certificate", `{"spec":{"issuerRef":{"group":"cert-manager.io","kind":"ClusterIssuer","name":"ca"}}}`, []string{"issuedBy ClusterIssuer.cert-manager.io /ca"}},
		"of another's issuer":   {"cert-manager.io", "Certificate", `{"spec":{"issuerRef":{"group":"example.com","kind":"Authority","name":"ca"}}}`, []string{"issuedBy Authority.example.com ns/ca"}},
		"topic":                 {"kafka.strimzi.io", "KafkaTopic", `{"metadata":{"labels":{"a":"b","strimzi.io/cluster":"k"}}}`, []string{"belongsTo Kafka.kafka.strimzi.io ns/k"}},
		"gateway": {"gateway.networking.k8s.io", "Gateway", `{"spec":{"gatewayClassName":"g","listeners":[{},{"tls":{"certificateRefs":[{"name":"a"},{"group":"","kind":"Secret","name":"b","namespace":"certs"}]}},5]}}`,
			[]string{"madeFrom GatewayClass.gateway.networking.k8s.io /g", "servesWith Secret certs/b", "servesWith Secret ns/a"}},
		"virtual service": {"networking.istio.io", "VirtualService", `{"spec":{"gateways":["g","istio-system/shared","mesh","all of them"],"http":[{"delegate":{"name":"d","namespace":"other"}}]}}`,
			[]string{"attachedTo Gateway.networking.istio.io istio-system/shared", "attachedTo Gateway.networking.istio.io ns/g", "routesTo VirtualService.networking.istio.io other/d"}},
		"helm release": {"helm.toolkit.fluxcd.io", "HelmRelease", `{"spec":{"chart":{"spec":{"sourceRef":{"kind":"GitRepository","name":"charts","namespace":"flux-system"}}},"chartRef":{"kind":"OCIRepository","name":"oci"}}}`,
			[]string{"madeFrom GitRepository.source.toolkit.fluxcd.io flux-system/charts", "madeFrom OCIRepository.source.toolkit.fluxcd.io ns/oci"}},
		"kustomization": {"kustomize.toolkit.fluxcd.io", "Kustomization", `{"spec":{"sourceRef":{"kind":"Bucket","name":"b"}}}`, []string{"madeFrom Bucket.source.toolkit.fluxcd.io ns/b"}},
		"application":   {"argoproj.io", "Application", `{"spec":{"project":"p"}}`, []string{"belongsTo AppProject.argoproj.io ns/p"}},
		"token of a cluster's issuer": {"cert-manager.io", "ClusterIssuer", `{"spec":{"acme":{"solvers":[{"http01":{}},{"dns01":{"cloudflare":{"apiTokenSecretRef":{"name":"dns","key":"token"}}}}]}}}`,
			[]string{"reads Secret cert-manager/dns"}},
		"package":  {"pkg.crossplane.io", "Provider", `{"spec":{"packagePullSecrets":[{"name":"registry"}]}}`, []string{"pullsWith Secret crossplane-system/registry"}},
		"database": {"postgresql.cnpg.io", "Pooler", `{"spec":{"cluster":{"name":"db"}}}`, []string{"belongsTo Cluster.postgresql.cnpg.io ns/db"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tt.want, findNamed(t, builtin, tt.group, tt.kind, tt.body))
		})
	}
}

// A cluster-scoped object names a Secret: only where the rule says in which namespace is the place known.
func TestClusterScopedObjectsNameNoNamespaceOfTheirOwn(t *testing.T) {
	t.Parallel()
	body := []byte(`{"spec":{"ca":{"secretName":"root"},"vault":{"secretRef":{"name":"s"}}}}`)
	rule := Rule{Group: "cert-manager.io", Kind: "ClusterIssuer", Field: "spec.vault.secretRef", To: "Secret"}
	found, _ := NewSet([]Rule{rule}, nil, nil).For(schema.GroupVersionKind{Group: "cert-manager.io", Kind: "ClusterIssuer"}, "").Find("", body)
	require.Equal(t, []string{"reads Secret cert-manager/root"}, referenceTexts(found))
}

// The spec of a Pod in a cluster-scoped custom resource does not say where its Secrets are.
func TestPodSpecsOfClusterScopedObjectsNameNoSecret(t *testing.T) {
	t.Parallel()
	definition := `{"spec":{"versions":[{"name":"v1","schema":{"openAPIV3Schema":{"properties":{"pod":{"type":"object","properties":{"containers":{"type":"array"}}}}}}}]}}`
	set := NewSet(nil, nil, func(schema.GroupResource) []byte { return []byte(definition) })
	body := []byte(`{"pod":{"containers":[{"envFrom":[{"secretRef":{"name":"s"}}]}],"serviceAccountName":"sa","priorityClassName":"high","volumes":[{"persistentVolumeClaim":{"claimName":"c"}}]}}`)
	found, _ := set.For(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}, "widgets").Find("", body)
	require.Equal(t, []string{"definedBy CustomResourceDefinition.apiextensions.k8s.io /widgets.example.com", "rankedBy PriorityClass.scheduling.k8s.io /high"}, referenceTexts(found))
}

// The kinds that the cluster serves decide where a group or a namespace is not said.
func TestServedKindsDecide(t *testing.T) {
	t.Parallel()
	set := NewSet([]Rule{{Group: "example.com", Kind: "Widget", Field: "spec.anyRef"}, {Group: "example.com", Kind: "Widget", Field: "spec.node", To: "Node"}}, scopeOfKind, nil)
	require.Equal(t, []string{"configuredBy ProviderConfig.aws.upbound.io /default"},
		findNamed(t, set, "s3.aws.upbound.io", "Bucket", `{"spec":{"providerConfigRef":{"name":"default"}}}`))
	require.Empty(t, findNamed(t, set, "sql.gcp.upbound.io", "Database", `{"spec":{"providerConfigRef":{"name":"default"}}}`), "nothing serves it")
	require.Equal(t, []string{"names Node /n", "names PersistentVolumeClaim ns/c"},
		findNamed(t, set, "example.com", "Widget", `{"spec":{"node":"n","anyRef":{"kind":"PersistentVolumeClaim","name":"c"}}}`))
	require.Equal(t, []string{"names Part.other.org ns/p"}, findNamed(t, set, "example.com", "Widget", `{"spec":{"anyRef":{"apiVersion":"other.org/v1","kind":"Part","name":"p"}}}`))
	require.Equal(t, []string{"names Secret ns/p"}, findNamed(t, set, "example.com", "Widget", `{"spec":{"anyRef":{"apiVersion":"v1","kind":"Secret","name":"p"}}}`))
	for _, body := range []string{`{"spec":{"anyRef":{"name":"p"}}}`, `{"spec":{"anyRef":{"kind":"Gadget","name":"p"}}}`, `{"spec":{"anyRef":{"kind":"Secret"}}}`,
		`{"spec":{"anyRef":"s","node":"a free text"}}`, `{"spec":{"anyRef":7,"node":[1]}}`, `{"spec":[]}`, `[]`, ``, `{"spec":{"node":"n`} {
		require.Empty(t, findNamed(t, set, "example.com", "Widget", body), body)
	}
}

func TestRulesOfUsers(t *testing.T) {
	t.Parallel()
	rules, errs := ParseRules(map[string]string{
		"a": "{group: example.com, kind: Widget, field: 'spec.parts[].config', to: ConfigMap, relation: reads}",
		"b": "{group: cert-manager.io, kind: Certificate, field: spec.secretName, ignore: true}",
		"c": "{group: '*.example.com', kind: '*', field: 'metadata.annotations[example.com/secret]', to: Secret, namespace: vault, source: 'https://example.com'}",
		"d": "{kind: Service, field: 'spec.matrix[][]', to: Part.example.com}",
	})
	require.Empty(t, errs)
	set := NewSet(rules, nil, nil)
	require.Equal(t, []string{"reads ConfigMap ns/x", "reads ConfigMap ns/y"}, findNamed(t, set, "example.com", "Widget", `{"spec":{"parts":[{"config":"x"},{"config":{"name":"y"}}]}}`))
	require.Equal(t, []string{"issuedBy Issuer.cert-manager.io ns/ca"}, findNamed(t, set, "cert-manager.io", "Certificate", `{"spec":{"secretName":"tls","issuerRef":{"name":"ca"}}}`))
	require.Equal(t, []string{"names Secret vault/s"}, findNamed(t, set, "shop.example.com", "Order", `{"metadata":{"annotations":{"example.com/secret":"s"}}}`))
	require.Equal(t, []string{"names Part.example.com ns/p"}, findNamed(t, set, "", "Service", `{"spec":{"matrix":[["p"]]}}`))
	require.Nil(t, set.For(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, ""))
}

func TestRulesThatAreNone(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"{group: g}":                                                             "kind and field are required",
		"{kind: K}":                                                              "kind and field are required",
		"{group: g, kind: K, field: spec.}":                                      "is not a path",
		"{group: g, kind: K, field: .spec}":                                      "is not a path",
		"{group: g, kind: K, field: spec..a}":                                    "is not a path",
		"{group: g, kind: K, field: 'spec[]a'}":                                  "is not a path",
		"{group: g, kind: K, field: '[]'}":                                       "is not a path",
		"{group: g, kind: K, field: 'spec[a'}":                                   "open bracket",
		"{group: '*', kind: K, field: spec.a}":                                   "group:",
		"{kind: '*', field: spec.a}":                                             "group:",
		"{group: g, kind: K, field: spec.a, other: x}":                           "other",
		"{group: g, kind: K, field: spec" + strings.Repeat(".a", maxSteps) + "}": "steps",
		"{group: g, kind: K, field: spec.a, to: " + strings.Repeat("x", maxText+1) + "}": "longer",
		"{group: g, kind: K, field: spec.a, relation: owns}":                             "relation: owns has a meaning",
		"{group: g, kind: K, field: spec.a, relation: calls}":                            "relation: calls has a meaning",
		"{group: g, kind: K, field: spec.a, relation: grantsTo}":                         "relation: grantsTo has a meaning",
		"[]": "data[bad]",
	} {
		rules, errs := ParseRules(map[string]string{"bad": text, "good": "{group: g, kind: K, field: spec.a}"})
		require.Len(t, rules, 1, text)
		require.Len(t, errs, 1, text)
		require.ErrorContains(t, errs[0], "ConfigMap holdfast-references: data[bad]: ", text)
		require.ErrorContains(t, errs[0], want, text)
	}
	for _, r := range builtinRules {
		require.NoError(t, r.checkRule(), r)
		require.NotEmpty(t, r.Relation)
	}
}

// widgetDefinition is a definition whose schema reveals references, and fields that look like some.
const widgetDefinition = `{"spec":{"versions":[{"name":"v0","schema":{"openAPIV3Schema":{"properties":{"spec":{"type":"object","properties":{"oldSecretName":{"type":"string"}}}}}}},
{"name":"v1","schema":{"openAPIV3Schema":{"type":"object","properties":{
"kind":{"type":"string"},"metadata":{"type":"object","properties":{"secretName":{"type":"string"}}},"status":{"type":"object","properties":{"secretName":{"type":"string"}}},
"spec":{"type":"object","properties":{
 "tlsSecretName":{"type":"string"},"secretName":{"type":"integer"},"nosecret":{"type":"string"},"storageClassName":{"type":"string"},
 "authSecretRef":{"type":"object","properties":{"name":{"type":"string"},"key":{"type":"string"}}},
 "configMapRefs":{"type":"array","items":{"type":"object","properties":{"name":{"type":"string"}}}},
 "imagePullSecrets":{"type":"array","items":{"type":"object","properties":{"name":{"type":"string"}}}},
 "envRef":{"type":"object","properties":{"name":{"type":"string"}}},
 "storeRef":{"type":"object","properties":{"name":{"type":"string"},"kind":{"type":"string"}}},
 "source":{"type":"object","properties":{"name":{"type":"string"},"kind":{"type":"string"},"apiVersion":{"type":"string"}}},
 "rule":{"type":"object","properties":{"name":{"type":"string"},"kind":{"type":"string"}}},
 "description":{"type":"object","x-kubernetes-preserve-unknown-fields":true},
 "pod":{"type":"object","properties":{"containers":{"type":"array"},"volumes":{"type":"array"}}}}}}}}}]}}`

func TestSchemasRevealReferences(t *testing.T) {
	t.Parallel()
	reads := 0
	set := NewSet([]Rule{{Group: "secrets.example.com", Kind: "Widget", Field: "spec.envRef", To: "ConfigMap", Relation: "reads"}}, scopeOfKind, func(gr schema.GroupResource) []byte {
		require.Equal(t, "widgets.secrets.example.com", gr.String())
		reads++
		return []byte(widgetDefinition)
	})
	body := `{"metadata":{"secretName":"no"},"status":{"secretName":"no"},"spec":{"oldSecretName":"no","tlsSecretName":"tls","secretName":"no","nosecret":"no","storageClassName":"fast",
"authSecretRef":{"name":"auth","key":"no"},"configMapRefs":[{"name":"a"},{"name":"b"}],"imagePullSecrets":[{"name":"pull"}],"envRef":{"name":"env"},"storeRef":{"kind":"Store","name":"st"},
"source":{"apiVersion":"apps/v1","kind":"Deployment","name":"d"},"rule":{"kind":"Secret","name":"no"},"description":{"secretName":"no"},"pod":{"serviceAccountName":"sa","volumes":[{"secret":{"secretName":"vol"}}]}}}`
	for range 2 {
		found, _ := set.For(schema.GroupVersionKind{Group: "secrets.example.com", Version: "v1", Kind: "Widget"}, "widgets").Find("ns", []byte(body))
		require.Equal(t, []string{"definedBy CustomResourceDefinition.apiextensions.k8s.io /widgets.secrets.example.com", "mounts Secret ns/vol", "names Deployment.apps ns/d",
			"names Store.secrets.example.com ns/st", "provisionedBy StorageClass.storage.k8s.io /fast", "reads ConfigMap ns/a", "reads ConfigMap ns/b", "reads ConfigMap ns/env",
			"reads Secret ns/auth", "reads Secret ns/pull", "reads Secret ns/tls", "runsAs ServiceAccount ns/sa"}, referenceTexts(found))
	}
	require.Equal(t, 1, reads, "once for the kind")
	for _, definition := range []string{``, `{}`, `{"spec":5}`, `{"spec":{"versions":[{"name":"v1"}]}}`, widgetDefinition[:700]} {
		set := NewSet(nil, scopeOfKind, func(schema.GroupResource) []byte { return []byte(definition) })
		_, complete := set.For(schema.GroupVersionKind{Group: "secrets.example.com", Version: "v1", Kind: "Widget"}, "widgets").Find("ns", []byte(body))
		require.True(t, complete)
	}
}

// What is below a field that a user ignores is ignored, too.
func TestIgnoredFieldsHoldNoReference(t *testing.T) {
	t.Parallel()
	set := NewSet([]Rule{{Group: "secrets.example.com", Kind: "Widget", Field: "spec", Ignore: true}}, scopeOfKind, func(schema.GroupResource) []byte { return []byte(widgetDefinition) })
	body := `{"spec":{"tlsSecretName":"tls","configMapRefs":[{"name":"a"}]}}`
	found, _ := set.For(schema.GroupVersionKind{Group: "secrets.example.com", Version: "v1", Kind: "Widget"}, "widgets").Find("ns", []byte(body))
	require.Equal(t, []string{"definedBy CustomResourceDefinition.apiextensions.k8s.io /widgets.secrets.example.com"}, referenceTexts(found))
}

// A definition can be as large and as deep as a user likes.
func TestRevealedRulesAreBounded(t *testing.T) {
	t.Parallel()
	var wide strings.Builder
	for i := range 2 * maxKindRules {
		fmt.Fprintf(&wide, `"f%dSecretName":{"type":"string"},`, i)
	}
	deep := `{"type":"string"}`
	for range 2 * maxSteps {
		deep = `{"type":"object","properties":{"secretName":` + deep + `}}`
	}
	var tree fieldTree
	addRevealed(&tree, []byte(`{"spec":{"versions":[{"name":"v1","schema":{"openAPIV3Schema":{"properties":{"deep":`+deep+`,"spec":{"type":"object","properties":{`+strings.TrimSuffix(wide.String(), ",")+`}}}}}}]}}`), "v1")
	require.Len(t, tree.children, 1, "what is too deep has no rule")
	require.Len(t, tree.children[0].children, maxKindRules)
}

// BenchmarkCustomResource is the search in a custom resource of 2 KiB: without rules, with rules that find
// nothing, and with three references.
func BenchmarkCustomResource(b *testing.B) {
	padding := func(n int) string {
		return strings.TrimSuffix(strings.Repeat(`{"type":"Ready","status":"True","reason":"Available","message":"all is well"},`, n), ",")
	}
	body := []byte(`{"apiVersion":"cluster.x-k8s.io/v1beta1","kind":"Machine","metadata":{"name":"m","namespace":"ns","labels":{"a":"b"},"managedFields":[` + padding(5) + `]},` +
		`"spec":{"bootstrap":{"configRef":{"apiGroup":"bootstrap.cluster.x-k8s.io","kind":"KubeadmConfig","name":"k"}},` +
		`"clusterName":"c","infrastructureRef":{"apiGroup":"infrastructure.cluster.x-k8s.io","kind":"DockerMachine","name":"d"},"version":"v1.33.0"},"status":{"conditions":[` + padding(20) + `]}}`)
	for name, kind := range map[string]schema.GroupVersionKind{
		"no rules": {Group: "example.com", Kind: "Widget"}, "nothing found": {Group: "gateway.networking.k8s.io", Kind: "Gateway"}, "three references": {Group: "cluster.x-k8s.io", Kind: "Machine"},
	} {
		b.Run(name, func(b *testing.B) {
			f := NewSet(nil, nil, nil).For(kind, "things")
			b.ReportAllocs()
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				f.Find("ns", body)
			}
		})
	}
}

// FuzzRules feeds the rules by fields, and the search for them in a schema, with any text.
func FuzzRules(f *testing.F) {
	f.Add([]byte(widgetDefinition), []byte(`{"spec":{"storeRef":{"kind":"Store","name":"s"},"pod":{"containers":[{"envFrom":[{"secretRef":{"name":"s"}}]}]}}}`))
	f.Add([]byte(`{"spec":{"versions":[{"name":"v1","schema":{"openAPIV3Schema":{"properties":{"a":{"type":"array","items":{"type":"array"}}}}}}]}}`), []byte(`{"spec":{"parentRefs":[{"name":"a\u002fb"}]}}`))
	f.Add([]byte(``), []byte(`{"metadata":{"labels":{"strimzi.io/cluster":"k"}},"spec":`))
	f.Fuzz(func(t *testing.T, definition, body []byte) {
		set := NewSet(nil, scopeOfKind, func(schema.GroupResource) []byte { return definition })
		for _, kind := range []schema.GroupVersionKind{{Group: "secrets.example.com", Version: "v1", Kind: "Widget"}, {Group: "cluster.x-k8s.io", Version: "v1", Kind: "Cluster"},
			{Group: "gateway.networking.k8s.io", Version: "v1", Kind: "HTTPRoute"}, {Group: "kafka.strimzi.io", Version: "v1", Kind: "KafkaTopic"}} {
			var found []manifest.Reference
			took := allocatedBy(func() { found, _ = set.For(kind, "things").Find("ns", body) })
			require.Less(t, took, uint64(boundFound+200*len(definition)+200*len(body)))
			require.LessOrEqual(t, len(found), Max)
			for i, r := range found {
				require.NotEmpty(t, r.Kind)
				require.NotEmpty(t, r.Name)
				require.True(t, i == 0 || compareReferences(found[i-1], r) < 0, "sorted, each once")
			}
		}
	})
}

// boundFound is what the rules of a kind, and what they find in one object, may take in memory: each of Max references
// has texts of maxText at most.
const boundFound = 16 << 20

// allocatedBy returns what do allocates, an upper bound of what it keeps alive.
func allocatedBy(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// FuzzParseRules feeds the ConfigMap of rules with any text, and what comes of it with an object.
func FuzzParseRules(f *testing.F) {
	f.Add("{group: example.com, kind: Widget, field: 'spec.parts[].config', to: ConfigMap, relation: reads}", []byte(`{"spec":{"parts":[{"config":"x"}]}}`))
	f.Add("a: &a [x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b]\nkind: [*c,*c,*c,*c,*c,*c,*c,*c]", []byte(`{}`))
	f.Add("{group: '*.example.com', kind: '*', field: 'a[][b.c]', ignore: true}", []byte(`{"a":[{"b.c":1}]}`))
	f.Fuzz(func(t *testing.T, text string, body []byte) {
		took := allocatedBy(func() {
			rules, errs := ParseRules(map[string]string{"rule": text})
			require.Len(t, errs, 1-len(rules))
			if found := NewSet(rules, scopeOfKind, nil).For(schema.GroupVersionKind{Group: "example.com", Kind: "Widget"}, "widgets"); found != nil {
				found.Find("ns", body)
			}
		})
		require.Less(t, took, uint64(boundFound+1000*len(text)+200*len(body)))
	})
}
