package reference

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
)

func localReference(name string) corev1.LocalObjectReference {
	return corev1.LocalObjectReference{Name: name}
}

// fullSpec names something in every place that counts, and things in places that do not.
func fullSpec() corev1.PodSpec {
	volume := func(s corev1.VolumeSource) corev1.Volume { return corev1.Volume{Name: "not-me", VolumeSource: s} }
	env := func(config, secret string) []corev1.EnvVar {
		return []corev1.EnvVar{
			{Name: "PLAIN", Value: "not-me"},
			{Name: "FIELD", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
			{Name: "A", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: localReference(config), Key: "not-me"}}},
			{Name: "B", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: localReference(secret), Key: "not-me"}}},
		}
	}
	return corev1.PodSpec{
		Volumes: []corev1.Volume{
			volume(corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "claim"}}),
			volume(corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: localReference("cm-volume")}}),
			volume(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "secret-volume"}}),
			volume(corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}),
			volume(corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
				{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: localReference("cm-projected")}},
				{Secret: &corev1.SecretProjection{LocalObjectReference: localReference("secret-projected")}},
				{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "not-me"}},
			}}}),
		},
		InitContainers: []corev1.Container{{Name: "not-me", Env: env("cm-init", "secret-init")}},
		Containers: []corev1.Container{
			{Name: "not-me", Env: env("cm-env", "secret-env"), EnvFrom: []corev1.EnvFromSource{
				{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: localReference("cm-from")}},
				{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: localReference("secret-from")}},
			}},
			{Name: "again", Env: env("cm-env", "secret-env")},
		},
		EphemeralContainers: []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "not-me", Env: env("cm-debug", "secret-debug")}}},
		ImagePullSecrets:    []corev1.LocalObjectReference{localReference("registry")},
		ServiceAccountName:  "sa", PriorityClassName: "high",
	}
}

var fullWant = []string{
	"claims PersistentVolumeClaim ns/claim",
	"mounts ConfigMap ns/cm-projected", "mounts ConfigMap ns/cm-volume", "mounts Secret ns/secret-projected", "mounts Secret ns/secret-volume",
	"pullsWith Secret ns/registry", "rankedBy PriorityClass.scheduling.k8s.io /high",
	"reads ConfigMap ns/cm-debug", "reads ConfigMap ns/cm-env", "reads ConfigMap ns/cm-from", "reads ConfigMap ns/cm-init",
	"reads Secret ns/secret-debug", "reads Secret ns/secret-env", "reads Secret ns/secret-from", "reads Secret ns/secret-init",
	"runsAs ServiceAccount ns/sa",
}

func referenceTexts(refs []manifest.Reference) []string {
	var out []string
	for _, r := range refs {
		out = append(out, fmt.Sprintf("%s %s %s/%s", r.Relation, schema.GroupKind{Group: r.Group, Kind: r.Kind}, r.Namespace, r.Name))
	}
	return out
}

// TestKinds holds the rules against the Kubernetes API's own types.
func TestKinds(t *testing.T) {
	tmpl := corev1.PodTemplateSpec{Spec: fullSpec()}
	class := "fast"
	hook := admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Namespace: "hooks", Name: "svc"}}
	url := "https://not-me"
	route := func(name string) networkingv1.IngressBackend {
		return networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: name}}
	}
	paths := &networkingv1.HTTPIngressRuleValue{Paths: []networkingv1.HTTPIngressPath{{Backend: route("web")}, {Backend: route("api")}, {Backend: route("web")}}}
	subjects := []rbacv1.Subject{
		{Kind: "ServiceAccount", Namespace: "other", Name: "sa"}, {Kind: "User", APIGroup: rbacv1.GroupName, Name: "not-me"},
		{Kind: "Group", APIGroup: rbacv1.GroupName, Name: "not-me"}, {Kind: "ServiceAccount", Namespace: "ns", Name: "sa"},
	}
	granted := []string{"grantsTo ServiceAccount ns/sa", "grantsTo ServiceAccount other/sa"}
	tests := map[string]struct {
		group, kind string
		object      any
		want        []string
	}{
		"pod":                    {"", "Pod", corev1.Pod{Spec: fullSpec()}, fullWant},
		"empty pod":              {"", "Pod", corev1.Pod{}, nil},
		"deployment":             {"apps", "Deployment", appsv1.Deployment{Spec: appsv1.DeploymentSpec{Template: tmpl}}, fullWant},
		"daemon set":             {"apps", "DaemonSet", appsv1.DaemonSet{Spec: appsv1.DaemonSetSpec{Template: tmpl}}, fullWant},
		"replica set":            {"apps", "ReplicaSet", appsv1.ReplicaSet{Spec: appsv1.ReplicaSetSpec{Template: tmpl}}, fullWant},
		"stateful set":           {"apps", "StatefulSet", appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{Template: tmpl, ServiceName: "head"}}, withFull("governedBy Service ns/head")},
		"job":                    {"batch", "Job", batchv1.Job{Spec: batchv1.JobSpec{Template: tmpl}}, fullWant},
		"cron job":               {"batch", "CronJob", batchv1.CronJob{Spec: batchv1.CronJobSpec{JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: tmpl}}}}, fullWant},
		"replication controller": {"", "ReplicationController", corev1.ReplicationController{Spec: corev1.ReplicationControllerSpec{Template: &tmpl}}, fullWant},
		"without a template":     {"", "ReplicationController", corev1.ReplicationController{}, nil},
		"claim": {"", "PersistentVolumeClaim", corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pv", StorageClassName: &class}},
			[]string{"binds PersistentVolume /pv", "provisionedBy StorageClass.storage.k8s.io /fast"}},
		"claim filled by a populator": {"", "PersistentVolumeClaim", corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{
			DataSource:    &corev1.TypedLocalObjectReference{APIGroup: &[]string{"example.com"}[0], Kind: "Filler", Name: "f"},
			DataSourceRef: &corev1.TypedObjectReference{APIGroup: &[]string{"example.com"}[0], Kind: "Filler", Name: "f"}}},
			[]string{"filledFrom Filler.example.com ns/f"}},
		"claim filled from elsewhere": {"", "PersistentVolumeClaim", corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{
			DataSourceRef: &corev1.TypedObjectReference{Kind: "PersistentVolumeClaim", Namespace: &[]string{"other"}[0], Name: "c"}}},
			[]string{"filledFrom PersistentVolumeClaim other/c"}},
		"quota": {"", "ResourceQuota", corev1.ResourceQuota{Spec: corev1.ResourceQuotaSpec{Scopes: []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeBestEffort},
			ScopeSelector: &corev1.ScopeSelector{MatchExpressions: []corev1.ScopedResourceSelectorRequirement{
				{ScopeName: corev1.ResourceQuotaScopePriorityClass, Operator: corev1.ScopeSelectorOpIn, Values: []string{"high", "higher"}},
				{ScopeName: corev1.ResourceQuotaScopeTerminating, Operator: corev1.ScopeSelectorOpExists}}}}},
			[]string{"limitedTo PriorityClass.scheduling.k8s.io /high", "limitedTo PriorityClass.scheduling.k8s.io /higher"}},
		"volume": {"", "PersistentVolume", corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{StorageClassName: class, ClaimRef: &corev1.ObjectReference{Namespace: "ns2", Name: "c", Kind: "PersistentVolumeClaim"}}},
			[]string{"binds PersistentVolumeClaim ns2/c", "provisionedBy StorageClass.storage.k8s.io /fast"}},
		"free volume": {"", "PersistentVolume", corev1.PersistentVolume{}, nil},
		"service account": {"", "ServiceAccount", corev1.ServiceAccount{Secrets: []corev1.ObjectReference{{Name: "token"}}, ImagePullSecrets: []corev1.LocalObjectReference{localReference("registry")}},
			[]string{"holds Secret ns/token", "pullsWith Secret ns/registry"}},
		"validating webhooks": {"admissionregistration.k8s.io", "ValidatingWebhookConfiguration", admissionv1.ValidatingWebhookConfiguration{
			Webhooks: []admissionv1.ValidatingWebhook{{ClientConfig: hook}, {ClientConfig: hook}, {ClientConfig: admissionv1.WebhookClientConfig{URL: &url}}}}, []string{"calls Service hooks/svc"}},
		"mutating webhooks": {"admissionregistration.k8s.io", "MutatingWebhookConfiguration", admissionv1.MutatingWebhookConfiguration{
			Webhooks: []admissionv1.MutatingWebhook{{ClientConfig: hook}}}, []string{"calls Service hooks/svc"}},
		"definition": {"apiextensions.k8s.io", "CustomResourceDefinition", apiextensionsv1.CustomResourceDefinition{Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Conversion: &apiextensionsv1.CustomResourceConversion{Webhook: &apiextensionsv1.WebhookConversion{ClientConfig: &apiextensionsv1.WebhookClientConfig{
				Service: &apiextensionsv1.ServiceReference{Namespace: "hooks", Name: "convert"}}}}}}, []string{"calls Service hooks/convert"}},
		"API service": {"apiregistration.k8s.io", "APIService", map[string]any{"spec": map[string]any{"group": "g", "service": map[string]any{"namespace": "kube-system", "name": "metrics", "port": 443}}},
			[]string{"calls Service kube-system/metrics"}},
		"own API service": {"apiregistration.k8s.io", "APIService", map[string]any{"spec": map[string]any{"group": "g", "service": nil}}, nil},
		"autoscaler": {"autoscaling", "HorizontalPodAutoscaler", autoscalingv2.HorizontalPodAutoscaler{Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}}}, []string{"scales Deployment.apps ns/web"}},
		"role binding": {"rbac.authorization.k8s.io", "RoleBinding", rbacv1.RoleBinding{Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "r"}},
			append([]string{"grants Role.rbac.authorization.k8s.io ns/r"}, granted...)},
		"role binding to a cluster role": {"rbac.authorization.k8s.io", "RoleBinding", rbacv1.RoleBinding{RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"}},
			[]string{"grants ClusterRole.rbac.authorization.k8s.io /view"}},
		"cluster role binding": {"rbac.authorization.k8s.io", "ClusterRoleBinding", rbacv1.ClusterRoleBinding{Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"}},
			append([]string{"grants ClusterRole.rbac.authorization.k8s.io /view"}, granted...)},
		"ingress": {"networking.k8s.io", "Ingress", networkingv1.Ingress{Spec: networkingv1.IngressSpec{DefaultBackend: &[]networkingv1.IngressBackend{route("fallback")}[0],
			TLS: []networkingv1.IngressTLS{{SecretName: "cert"}, {Hosts: []string{"not-me"}}}, Rules: []networkingv1.IngressRule{{IngressRuleValue: networkingv1.IngressRuleValue{HTTP: paths}}, {Host: "not-me"}}}},
			[]string{"routesTo Service ns/api", "routesTo Service ns/fallback", "routesTo Service ns/web", "servesWith Secret ns/cert"}},
	}
	seen := map[schema.GroupKind]bool{}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			kind := schema.GroupKind{Group: tt.group, Kind: tt.kind}
			raw, err := json.Marshal(tt.object)
			require.NoError(t, err)
			found, complete := For(kind).Find("ns", raw)
			require.Equal(t, tt.want, referenceTexts(found))
			require.True(t, complete)
			seen[kind] = true
		})
	}
	require.Len(t, seen, len(rules), "every rule has a test")
}

func withFull(more ...string) []string {
	out := slices.Concat(fullWant, more)
	slices.Sort(out)
	return out
}

func TestKindsWithoutRules(t *testing.T) {
	for _, kind := range []schema.GroupKind{{Kind: "ConfigMap"}, {Kind: "Secret"}, {Group: "example.com", Kind: "Pod"}, {}} {
		f := For(kind)
		require.Nil(t, f)
		found, complete := f.Find("ns", []byte(`{"spec":{"serviceAccountName":"sa"}}`))
		require.Nil(t, found)
		require.True(t, complete)
	}
}

func TestCustomResource(t *testing.T) {
	found, complete := NewSet(nil, nil, nil).For(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}, "widgets").Find("ns", []byte(`{`))
	require.Equal(t, []string{"definedBy CustomResourceDefinition.apiextensions.k8s.io /widgets.example.com"}, referenceTexts(found))
	require.True(t, complete)
}

func TestMalformedBodiesGiveNothing(t *testing.T) {
	f := For(schema.GroupKind{Kind: "Pod"})
	for _, raw := range []string{
		``, `null`, `[]`, `5`, `{`, `{"spec":`, `{"spec":5}`, `{"spec":{"serviceAccountName":"sa"}`, `{"spec":{"serviceAccountName":"sa",}`,
		`{"spec":{"serviceAccountName":"sa","volumes":{}}}`, `{"spec":{"serviceAccountName":"sa","volumes":[5]}}`,
		`{"spec":{"serviceAccountName":"sa","priorityClassName":7}}`, `{"spec":{"serviceAccountName":"sa","containers":[{"env":[{"valueFrom":"x"}]}]}}`,
		`{"spec":{"serviceAccountName":"` + strings.Repeat("x", maxText+1) + `"}}`, `{"spec":{"serviceAccountName":""}}`, `{"spec":null}`,
	} {
		found, complete := f.Find("ns", []byte(raw))
		require.Empty(t, found, raw)
		require.True(t, complete)
	}
	found, _ := f.Find("ns", []byte(` { "spec" : { "serviceAccountName" : "s\u0061" } } `))
	require.Equal(t, []string{"runsAs ServiceAccount ns/sa"}, referenceTexts(found), "a Finder survives malformed bodies")
	autoscaler := For(schema.GroupKind{Group: "autoscaling", Kind: "HorizontalPodAutoscaler"})
	found, _ = autoscaler.Find("ns", []byte(`{"spec":{"scaleTargetRef":{"apiVersion":"a/b/c","kind":"K","name":"n"}}}`))
	require.Empty(t, found)
}

func TestManyReferences(t *testing.T) {
	for _, n := range []int{Max, Max + 1, 5 * Max} {
		var b strings.Builder
		b.WriteString(`{"secrets":[`)
		for i := range n { // in no order, each twice
			fmt.Fprintf(&b, `{"name":"s-%05d"},`, (i*7919)%n)
			fmt.Fprintf(&b, `{"name":"s-%05d"},`, n-1-i)
		}
		raw := strings.TrimSuffix(b.String(), ",") + `]}`
		found, complete := For(schema.GroupKind{Kind: "ServiceAccount"}).Find("ns", []byte(raw))
		require.Len(t, found, Max)
		require.Equal(t, n == Max, complete)
		for i, r := range found {
			require.Equal(t, fmt.Sprintf("s-%05d", i), r.Name, "the first ones in order, whatever the order in the body")
		}
	}
}

func TestResultsDoNotShareText(t *testing.T) {
	f := For(schema.GroupKind{Kind: "Pod"})
	raw := []byte(`{"spec":{"serviceAccountName":"first"}}`)
	found, _ := f.Find("ns", raw)
	name := found[0].Name
	copy(raw, `{"spec":{"serviceAccountName":"other"}}`)
	_, _ = f.Find("ns", raw)
	require.Equal(t, "first", name)
}

// FuzzFind feeds every rule with text that is no object of its kind.
func FuzzFind(f *testing.F) {
	raw, err := json.Marshal(corev1.Pod{Spec: fullSpec()})
	require.NoError(f, err)
	f.Add("ns", raw)
	for _, seed := range []string{
		`{"spec":{"template":{"spec":{"volumes":[{"secret":{"secretName":"s"}}]}},"serviceName":"x"}}`, `{"webhooks":[{"clientConfig":{"service":{"namespace":"n","name":"s"}}}]}`,
		`{"roleRef":{"kind":"Role","name":"r"},"subjects":[{"kind":"ServiceAccount","namespace":"n","name":"s"}]}`, `{"spec":{"scaleTargetRef":{"apiVersion":"a/v1","kind":"K","name":"n"}}}`,
		`{"spec":{"rules":[{"http":{"paths":[{"backend":{"service":{"name":"s"}}}]}}],"tls":[{"secretName":"t"}],"claimRef":{"namespace":"n","name":"c"},"storageClassName":"s"}}`,
		`{"spec":`, `[]`, `{"spec":{"volumes":null}}`,
	} {
		f.Add("", []byte(seed))
	}
	f.Fuzz(func(t *testing.T, namespace string, raw []byte) {
		for kind, r := range rules {
			found, _ := (&Finder{rules: &kindRules{rule: r}}).Find(namespace, raw)
			require.LessOrEqual(t, len(found), Max)
			for i, ref := range found {
				require.NotEmpty(t, ref.Name, kind)
				require.NotEmpty(t, ref.Kind, kind)
				require.LessOrEqual(t, len(ref.Name)+len(ref.Kind)+len(ref.Group)+len(ref.Namespace), 4*maxText)
				require.True(t, i == 0 || compareReferences(found[i-1], ref) < 0, "sorted, each once")
			}
		}
	})
}
