package chart_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/holdfast-io/holdfast/e2e/harness/chart"
	"github.com/holdfast-io/holdfast/e2e/harness/fleet"
)

// templates returns the Pods that the chart makes, by component: of services, NATS and the Job.
func templates(t *testing.T, objects []*unstructured.Unstructured) map[string]corev1.PodTemplateSpec {
	t.Helper()
	found := map[string]corev1.PodTemplateSpec{}
	for _, object := range objects {
		if !slices.Contains([]string{"Deployment", "StatefulSet", "Job"}, object.GetKind()) {
			continue
		}
		raw, _, err := unstructured.NestedMap(object.Object, "spec", "template")
		require.NoError(t, err)
		var template corev1.PodTemplateSpec
		require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(raw, &template, true))
		found[object.GetLabels()[component]] = template
	}
	require.Len(t, found, len(fleet.Services)+2)
	return found
}

func env(c corev1.Container) map[string]string {
	values := map[string]string{}
	for _, v := range c.Env {
		values[v.Name] = v.Value
	}
	return values
}

// What a cluster asks of every Pod reaches every Pod; a service's own value goes before it.
func TestPodsGoWhereTheyShould(t *testing.T) {
	objects := render(t, "--set", "nodeSelector.pool=infra,nats.nodeSelector.pool=nats,deletion.nodeSelector.pool=other,image.imagePullSecrets={pull}",
		"--set", "tolerations[0].key=infra,affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight=7",
		"--set", "deletion.tolerations[0].key=own,image.registry=registry.example/mirror,image.tag=v2")
	pools := map[string]string{"nats": "nats", "deletion": "other"}
	for name, template := range templates(t, objects) {
		pod, pool, toleration := template.Spec, pools[name], "infra"
		if pool == "" {
			pool = "infra"
		}
		if name == "deletion" {
			toleration = "own"
		}
		require.Equal(t, map[string]string{"pool": pool}, pod.NodeSelector, name)
		require.Equal(t, []corev1.Toleration{{Key: toleration}}, pod.Tolerations, name)
		require.EqualValues(t, 7, pod.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution[0].Weight, name)
		require.Equal(t, []corev1.LocalObjectReference{{Name: "pull"}}, pod.ImagePullSecrets, name)
		require.True(t, strings.HasPrefix(pod.Containers[0].Image, "registry.example/mirror/") && strings.HasSuffix(pod.Containers[0].Image, ":v2"), pod.Containers[0].Image)
	}
}

// Replicas spread over hosts and zones, and an eviction takes one at a time.
func TestReplicasSpread(t *testing.T) {
	objects := render(t)
	for name, template := range templates(t, objects) {
		if name == "definitions" {
			continue
		}
		require.Equal(t, "kubernetes.io/hostname", template.Spec.TopologySpreadConstraints[0].TopologyKey, name)
		budget := named(objects, "PodDisruptionBudget", chart.Release+"-"+name)
		require.NotNil(t, budget, name)
		unavailable, _, err := unstructured.NestedFieldNoCopy(budget.Object, "spec", "maxUnavailable")
		require.NoError(t, err)
		require.EqualValues(t, 1, unavailable, name)
		require.NotNil(t, named(objects, "NetworkPolicy", chart.Release+"-"+name), name)
	}
}

// The API server and the Services of the cluster are never asked for through the proxy: it would
// have to reach them, and would see tokens.
func TestTheProxyIsForWhatIsOutside(t *testing.T) {
	for _, d := range deployments(t, render(t, "--set", "proxy.https=http://proxy:3128,proxy.noProxy=minio.example.com")) {
		have := env(d.Spec.Template.Spec.Containers[0])
		require.Equal(t, "http://proxy:3128", have["HTTPS_PROXY"])
		require.Equal(t, "minio.example.com,$(KUBERNETES_SERVICE_HOST),.svc,.svc.cluster.local", have["NO_PROXY"])
	}
	for _, d := range deployments(t, render(t)) {
		require.NotContains(t, env(d.Spec.Template.Spec.Containers[0]), "NO_PROXY")
	}
}

// Platforms give Pods an identity by annotations of the account, or by labels of it and of the Pod.
func TestWorkloadIdentity(t *testing.T) {
	objects := render(t, "--set", "serviceAccount.server.annotations.azure\\.workload\\.identity/client-id=all,serviceAccount.server.labels.team=storage",
		"--set-string", "podLabels.azure\\.workload\\.identity/use=true", "--set", "deletion.serviceAccount.annotations.azure\\.workload\\.identity/client-id=own")
	for _, service := range fleet.Services {
		account, want := named(objects, "ServiceAccount", chart.Release+"-"+service), "all"
		if service == "deletion" {
			want = "own"
		}
		require.Equal(t, want, account.GetAnnotations()["azure.workload.identity/client-id"], service)
		require.Equal(t, "storage", account.GetLabels()["team"], service)
		pod := deployments(t, objects)[service].Spec.Template
		require.Equal(t, "true", pod.Labels["azure.workload.identity/use"], service)
		require.Equal(t, account.GetName(), pod.Spec.ServiceAccountName, service)
	}
}

func TestEnvironmentAndVolumesAreAdded(t *testing.T) {
	objects := render(t, "--set-string", "extraEnv.EVERY=1,deletion.extraEnv[0].name=OWN,deletion.extraEnv[0].value=2",
		"--set", "extraVolumes[0].name=every,extraVolumeMounts[0].name=every,extraVolumeMounts[0].mountPath=/every",
		"--set", "deletion.extraVolumes[0].name=own,deletion.extraVolumeMounts[0].name=own,deletion.extraVolumeMounts[0].mountPath=/own")
	for service, d := range deployments(t, objects) {
		pod := d.Spec.Template.Spec
		has := func(name string) bool {
			return slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == name }) &&
				slices.Contains(pod.Containers[0].VolumeMounts, corev1.VolumeMount{Name: name, MountPath: "/" + name})
		}
		require.Equal(t, "1", env(pod.Containers[0])["EVERY"], service)
		require.True(t, has("every"), service)
		require.Equal(t, service == "deletion", env(pod.Containers[0])["OWN"] == "2", service)
		require.Equal(t, service == "deletion", has("own"), service)
	}
}

func TestExtraRulesAreOfOneService(t *testing.T) {
	objects := render(t, "--set", "backupRunner.extraRules[0].apiGroups={databases.example.com},backupRunner.extraRules[0].resources={clusters},backupRunner.extraRules[0].verbs={get}")
	asked := chart.Request{Verb: "get", Group: "databases.example.com", Resource: "clusters"}
	for _, service := range fleet.Services {
		if service == "restore-runner" {
			continue // it may get everything
		}
		may := slices.ContainsFunc(rules(t, objects, ofService(service)), func(rule rbacv1.PolicyRule) bool { return asked.Matches(&rule) })
		require.Equal(t, service == "backup-runner", may, service)
	}
}

// A platform that chooses user ids finds none named, and no group that it would refuse.
func TestAPlatformMayChooseUserIDs(t *testing.T) {
	for name, template := range templates(t, render(t, "--set", "nats.podSecurityContext=null")) {
		pod := template.Spec
		require.Nil(t, pod.SecurityContext.RunAsUser, name)
		require.Nil(t, pod.SecurityContext.RunAsGroup, name)
		require.Nil(t, pod.SecurityContext.FSGroup, name)
		require.Nil(t, pod.Containers[0].SecurityContext.RunAsUser, name)
		require.True(t, *pod.SecurityContext.RunAsNonRoot, name)
	}
	require.EqualValues(t, 65532, *templates(t, render(t))["nats"].Spec.SecurityContext.FSGroup)
}

func TestServicesOfBothFamilies(t *testing.T) {
	for _, object := range render(t, "--set", "ipFamilyPolicy=PreferDualStack") {
		if object.GetKind() != "Service" || strings.HasSuffix(object.GetName(), "-peers") { // headless: addresses of Pods
			continue
		}
		policy, _, err := unstructured.NestedString(object.Object, "spec", "ipFamilyPolicy")
		require.NoError(t, err)
		require.Equal(t, "PreferDualStack", policy, object.GetName())
	}
}

// No object of one release has the name of one of another: what is outside of namespaces has the
// release's namespace in its name.
func TestReleasesDoNotMeet(t *testing.T) {
	names := map[string]bool{}
	for _, object := range render(t) {
		if object.GetNamespace() == "" {
			names[object.GetKind()+" "+object.GetName()] = true
		}
	}
	second, err := chart.Render(t.Context(), t.TempDir(), "other", "--set", "callerRoles.create=false")
	require.NoError(t, err)
	for _, object := range second {
		require.False(t, names[object.GetKind()+" "+object.GetName()], object.GetName())
	}
}

// As many copies of streams as the chart's NATS has servers, without a value of its own.
func TestStreamsHaveACopyPerServer(t *testing.T) {
	for want, set := range map[string]string{
		"--nats-stream-replicas=3": "nats.replicas=3", "": "nats.replicas=1", "--nats-stream-replicas=1": "nats.replicas=3,nats.streamReplicas=1",
		"--nats-stream-replicas=5": "nats.enabled=false,nats.url=nats://nats,nats.streamReplicas=5",
	} {
		for service, d := range deployments(t, render(t, "--set", set)) {
			args := d.Spec.Template.Spec.Containers[0].Args
			i := slices.IndexFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "--nats-stream-replicas") })
			if want == "" {
				require.Negative(t, i, service)
				continue
			}
			require.Contains(t, args, want, "%s with %s", service, set)
		}
	}
}

// One ServiceMonitor finds the port http of every service, where the cluster knows the kind.
func TestTheServiceMonitorFindsTheServices(t *testing.T) {
	const on, known = "metrics.serviceMonitor.enabled=true,metrics.serviceMonitor.additionalLabels.release=prometheus", "monitoring.coreos.com/v1"
	require.Nil(t, named(render(t), "ServiceMonitor", chart.Release))
	require.Nil(t, named(render(t, "--set", on), "ServiceMonitor", chart.Release), "the cluster does not serve the kind")
	require.NotNil(t, named(render(t, "--set", on+",metrics.serviceMonitor.autodetect=false"), "ServiceMonitor", chart.Release))
	objects := render(t, "--set", on, "--api-versions", known)
	monitor := named(objects, "ServiceMonitor", chart.Release)
	require.Equal(t, "prometheus", monitor.GetLabels()["release"])
	selector, _, err := unstructured.NestedStringMap(monitor.Object, "spec", "selector", "matchLabels")
	require.NoError(t, err)
	endpoints, _, err := unstructured.NestedSlice(monitor.Object, "spec", "endpoints")
	require.NoError(t, err)
	require.Equal(t, []any{map[string]any{"port": "http", "path": "/metrics", "interval": "30s", "scrapeTimeout": "10s"}}, endpoints)
	var found []string
	for _, object := range objects {
		if object.GetKind() != "Service" {
			continue
		}
		var service corev1.Service
		require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &service))
		for key, value := range selector {
			require.Equal(t, value, service.Labels[key], service.Name)
		}
		if slices.ContainsFunc(service.Spec.Ports, func(port corev1.ServicePort) bool { return port.Name == "http" }) {
			found = append(found, service.Labels[component])
		}
	}
	require.ElementsMatch(t, fleet.Services, found)
}

// Pods of the release reach NATS, and its servers one another; a runner is reached by
// async-operation-monitor and by those who may call, other services by the latter only.
func TestOnlyPeersAreLetIn(t *testing.T) {
	objects := render(t, "--set", "nats.replicas=3,tls.secretName=certificates,networkPolicy.callersFrom[0].podSelector.matchLabels.a=caller")
	from := func(component, port string) []map[string]string {
		var policy networkingv1.NetworkPolicy
		object := named(objects, "NetworkPolicy", chart.Release+"-"+component)
		require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &policy))
		var peers []map[string]string
		for _, rule := range policy.Spec.Ingress {
			if slices.ContainsFunc(rule.Ports, func(p networkingv1.NetworkPolicyPort) bool { return p.Port.StrVal == port }) {
				require.NotEmpty(t, rule.From, "%s: everyone reaches %s", component, port)
				for _, peer := range rule.From {
					peers = append(peers, peer.PodSelector.MatchLabels)
				}
			}
		}
		return peers
	}
	release := map[string]string{"app.kubernetes.io/name": "holdfast", "app.kubernetes.io/instance": chart.Release}
	with := func(name string) map[string]string {
		labels := maps.Clone(release)
		labels[component] = name
		return labels
	}
	caller := map[string]string{"a": "caller"}
	require.Equal(t, []map[string]string{release}, from("nats", "nats"))
	require.Equal(t, []map[string]string{with("nats")}, from("nats", "cluster"))
	for _, service := range fleet.Services {
		want := []map[string]string{caller}
		if strings.HasSuffix(service, "-runner") {
			want = []map[string]string{with("async-operation-monitor"), caller}
		}
		require.Equal(t, want, from(service, "grpc"), service)
	}
}
