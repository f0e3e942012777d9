package chart_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/holdfast-io/holdfast/e2e/harness/chart"
	"github.com/holdfast-io/holdfast/e2e/harness/fleet"
)

// podTemplates returns the Pods that the chart makes, by component: of services, NATS and the Job.
func podTemplates(t *testing.T, objects []*unstructured.Unstructured) map[string]corev1.PodTemplateSpec {
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
	require.Len(t, found, len(fleet.Services)+3) // NATS, and the Jobs that upgrade definitions and clean up
	return found
}

func envVars(c corev1.Container) map[string]string {
	values := map[string]string{}
	for _, v := range c.Env {
		values[v.Name] = v.Value
	}
	return values
}

// What a cluster asks of every Pod reaches every Pod; a service's own value goes before it.
func TestPodsGoWhereTheyShould(t *testing.T) {
	objects := renderChart(t, "--set", "nodeSelector.pool=infra,nats.nodeSelector.pool=nats,deletion.nodeSelector.pool=other,image.imagePullSecrets={pull}",
		"--set", "tolerations[0].key=infra,affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight=7",
		"--set", "deletion.tolerations[0].key=own,image.registry=registry.example/mirror,image.tag=v2")
	pools := map[string]string{"nats": "nats", "deletion": "other"}
	for name, template := range podTemplates(t, objects) {
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
	objects := renderChart(t)
	for name, template := range podTemplates(t, objects) {
		if name == "definitions" || name == "cleanup" {
			continue
		}
		require.Equal(t, "kubernetes.io/hostname", template.Spec.TopologySpreadConstraints[0].TopologyKey, name)
		budget := objectNamed(objects, "PodDisruptionBudget", chart.Release+"-"+name)
		require.NotNil(t, budget, name)
		unavailable, _, err := unstructured.NestedFieldNoCopy(budget.Object, "spec", "maxUnavailable")
		require.NoError(t, err)
		require.EqualValues(t, 1, unavailable, name)
		require.NotNil(t, objectNamed(objects, "NetworkPolicy", chart.Release+"-"+name), name)
	}
}

// The API server and the Services of the cluster are never asked for through the proxy: it would
// have to reach them, and would see tokens.
func TestTheProxyIsForWhatIsOutside(t *testing.T) {
	for _, d := range serviceDeployments(t, renderChart(t, "--set", "proxy.https=http://proxy:3128,proxy.noProxy=minio.example.com")) {
		have := envVars(d.Spec.Template.Spec.Containers[0])
		require.Equal(t, "http://proxy:3128", have["HTTPS_PROXY"])
		require.Equal(t, "minio.example.com,$(KUBERNETES_SERVICE_HOST),.svc,.svc.cluster.local", have["NO_PROXY"])
	}
	for _, d := range serviceDeployments(t, renderChart(t)) {
		require.NotContains(t, envVars(d.Spec.Template.Spec.Containers[0]), "NO_PROXY")
	}
}

// A mover reaches the bucket as the services do: through their proxy, with their environment and authorities.
func TestMoversReachTheBucketAsServicesDo(t *testing.T) {
	flags := func(args ...string) []string {
		return serviceDeployments(t, renderChart(t, args...))["volume-mover"].Spec.Template.Spec.Containers[0].Args
	}
	require.Contains(t, flags(), "--mover-env=HTTPS_PROXY,HTTP_PROXY,NO_PROXY")
	require.NotContains(t, strings.Join(flags(), " "), "--mover-ca")
	full := flags("--set", "extraEnv.EVERY=1,configuration.extraEnvVars[0].name=VELERO,configuration.extraEnvVars[0].value=v,credentials.extraEnvVars.KEY=secret",
		"--set", "volumeMover.extraEnv.OWN=2,deletion.extraEnv.OTHER=3,caCertificates.configMap=authorities")
	require.Contains(t, full, "--mover-env=EVERY,HTTPS_PROXY,HTTP_PROXY,KEY,NO_PROXY,OWN,VELERO")
	require.Contains(t, full, "--mover-ca=configmap/authorities")
	require.Contains(t, flags("--set", "caCertificates.secret=authorities"), "--mover-ca=secret/authorities")
}

// Platforms give Pods an identity by annotations of the account, or by labels of it and of the Pod.
func TestWorkloadIdentity(t *testing.T) {
	objects := renderChart(t, "--set", "serviceAccount.server.annotations.azure\\.workload\\.identity/client-id=all,serviceAccount.server.labels.team=storage",
		"--set-string", "podLabels.azure\\.workload\\.identity/use=true", "--set", "deletion.serviceAccount.annotations.azure\\.workload\\.identity/client-id=own")
	for _, service := range fleet.Services {
		account, want := objectNamed(objects, "ServiceAccount", chart.Release+"-"+service), "all"
		if service == "deletion" {
			want = "own"
		}
		require.Equal(t, want, account.GetAnnotations()["azure.workload.identity/client-id"], service)
		require.Equal(t, "storage", account.GetLabels()["team"], service)
		pod := serviceDeployments(t, objects)[service].Spec.Template
		require.Equal(t, "true", pod.Labels["azure.workload.identity/use"], service)
		require.Equal(t, account.GetName(), pod.Spec.ServiceAccountName, service)
	}
}

func TestEnvironmentAndVolumesAreAdded(t *testing.T) {
	objects := renderChart(t, "--set-string", "extraEnv.EVERY=1,deletion.extraEnv[0].name=OWN,deletion.extraEnv[0].value=2",
		"--set", "extraVolumes[0].name=every,extraVolumeMounts[0].name=every,extraVolumeMounts[0].mountPath=/every",
		"--set", "deletion.extraVolumes[0].name=own,deletion.extraVolumeMounts[0].name=own,deletion.extraVolumeMounts[0].mountPath=/own")
	for service, d := range serviceDeployments(t, objects) {
		pod := d.Spec.Template.Spec
		has := func(name string) bool {
			return slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == name }) &&
				slices.Contains(pod.Containers[0].VolumeMounts, corev1.VolumeMount{Name: name, MountPath: "/" + name})
		}
		require.Equal(t, "1", envVars(pod.Containers[0])["EVERY"], service)
		require.True(t, has("every"), service)
		require.Equal(t, service == "deletion", envVars(pod.Containers[0])["OWN"] == "2", service)
		require.Equal(t, service == "deletion", has("own"), service)
	}
}

func TestExtraRulesAreOfOneService(t *testing.T) {
	objects := renderChart(t, "--set", "backupRunner.extraRules[0].apiGroups={databases.example.com},backupRunner.extraRules[0].resources={clusters},backupRunner.extraRules[0].verbs={get}")
	asked := chart.Request{Verb: "get", Group: "databases.example.com", Resource: "clusters"}
	for _, service := range fleet.Services {
		if service == "restore-runner" {
			continue // it may get everything
		}
		may := asked.AllowedBy(roleRules(t, objects, ofService(service)))
		require.Equal(t, service == "backup-runner", may, service)
	}
}

// A platform that chooses user ids finds none named, and no group that it would refuse.
func TestAPlatformMayChooseUserIDs(t *testing.T) {
	for name, template := range podTemplates(t, renderChart(t, "--set", "nats.podSecurityContext=null")) {
		pod := template.Spec
		require.Nil(t, pod.SecurityContext.RunAsUser, name)
		require.Nil(t, pod.SecurityContext.RunAsGroup, name)
		require.Nil(t, pod.SecurityContext.FSGroup, name)
		require.Nil(t, pod.Containers[0].SecurityContext.RunAsUser, name)
		require.True(t, *pod.SecurityContext.RunAsNonRoot, name)
	}
	require.EqualValues(t, 65532, *podTemplates(t, renderChart(t))["nats"].Spec.SecurityContext.FSGroup)
}

func TestServicesOfBothFamilies(t *testing.T) {
	for _, object := range renderChart(t, "--set", "ipFamilyPolicy=PreferDualStack") {
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
	for _, object := range renderChart(t) {
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
