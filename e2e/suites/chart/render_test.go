package chart_test

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/holdfast-io/holdfast/e2e/harness/chart"
	"github.com/holdfast-io/holdfast/e2e/harness/fleet"
	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
	"github.com/holdfast-io/holdfast/pkg/service"
)

// variants are sets of values that everything below holds for.
var variants = map[string][]string{
	"default": nil,
	"full": {
		"--set", "tls.mode=secret,tls.secretName=certificates,tls.clientCASecret=callers,nats.tlsSecret=nats-tls,authAudience=holdfast,features={EnableCSI},nats.replicas=3,nats.credentialsSecret.name=nats",
		"--set", "caCertificates.configMap=authorities,proxy.https=http://proxy:3128,ipFamilyPolicy=PreferDualStack,networkPolicy.egress[0].ports[0].port=443",
		"--set", "backupRunner.args.workers=8,backupRunner.replicas=3,image.imagePullSecrets={pull},image.tag=v1,networkPolicy.callersFrom[0].podSelector.matchLabels.a=b",
	},
	"plain":                    {"--set", "tls.mode=none"},
	"outside":                  {"--set", "nats.enabled=false,nats.urlSecret.name=nats,nats.caSecret.name=authority,nats.clientCertificateSecret=client,auth=none,tls.mode=none,rbac.create=false,networkPolicy.enabled=false,callerRoles.create=false,hooks.enabled=false"},
	"velero-aws":               {"--values", "testdata/velero-aws.yaml"},
	"velero-workload-identity": {"--values", "testdata/velero-workload-identity.yaml"},
	"velero-minio":             {"--values", "testdata/velero-minio.yaml"},
}

// rendered are the objects that render returned, by its arguments.
var rendered sync.Map

// renderChart returns the objects of the chart, which the caller must not change: helm runs once for the
// same arguments.
func renderChart(t *testing.T, args ...string) []*unstructured.Unstructured {
	t.Helper()
	key := strings.Join(args, "\x00")
	if known, ok := rendered.Load(key); ok {
		return known.([]*unstructured.Unstructured)
	}
	objects, err := chart.Render(t.Context(), t.TempDir(), namespace, args...)
	require.NoError(t, err)
	rendered.Store(key, objects)
	return objects
}

// serviceDeployments returns the Deployments of the services by the services' names.
func serviceDeployments(t *testing.T, objects []*unstructured.Unstructured) map[string]*appsv1.Deployment {
	t.Helper()
	found := map[string]*appsv1.Deployment{}
	for _, object := range objects {
		if object.GetKind() == "Deployment" {
			d := &appsv1.Deployment{}
			require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, d, true))
			found[d.Labels["app.kubernetes.io/component"]] = d
		}
	}
	require.Len(t, found, len(fleet.Services))
	return found
}

// objectNamed returns the object of a kind and name, nil when there is none.
func objectNamed(objects []*unstructured.Unstructured, kind, name string) *unstructured.Unstructured {
	i := slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetKind() == kind && o.GetName() == name })
	if i < 0 {
		return nil
	}
	return objects[i]
}

func TestServicesTakeTheFlagsTheyAreGiven(t *testing.T) {
	for name, args := range variants {
		for service, d := range serviceDeployments(t, renderChart(t, args...)) {
			binary, err := testbed.Product(service)
			require.NoError(t, err)
			out, err := exec.CommandContext(t.Context(), binary, append(d.Spec.Template.Spec.Containers[0].Args, "--version")...).CombinedOutput()
			require.NoError(t, err, "%s of %s: %s", service, name, out)
		}
	}
}

// A Pod has to have the time that the binary takes to stop at the most, and the pause before it.
func TestPodsAreGivenTheTimeToHandOver(t *testing.T) {
	const spans, drain = 5 * time.Second, time.Minute
	for name, d := range serviceDeployments(t, renderChart(t)) {
		pod := d.Spec.Template.Spec
		need := service.HandOverLimit + service.HandOverLimit + service.CallLimit + spans
		if strings.HasSuffix(name, "-runner") {
			need += drain
		}
		need += time.Duration(pod.Containers[0].Lifecycle.PreStop.Sleep.Seconds) * time.Second
		require.GreaterOrEqual(t, time.Duration(*pod.TerminationGracePeriodSeconds)*time.Second, need, name)
	}
}

func TestPodsAreRestricted(t *testing.T) {
	for name, args := range variants {
		for service, d := range serviceDeployments(t, renderChart(t, args...)) {
			pod := d.Spec.Template.Spec
			require.False(t, *pod.EnableServiceLinks, name)
			require.True(t, *pod.SecurityContext.RunAsNonRoot, name)
			require.Nil(t, pod.SecurityContext.RunAsUser, "a platform may choose the user")
			require.Equal(t, corev1.SeccompProfileTypeRuntimeDefault, pod.SecurityContext.SeccompProfile.Type)
			for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
				require.True(t, *c.SecurityContext.ReadOnlyRootFilesystem, "%s of %s", service, name)
				require.False(t, *c.SecurityContext.AllowPrivilegeEscalation)
				require.Equal(t, []corev1.Capability{"ALL"}, c.SecurityContext.Capabilities.Drop)
			}
			for _, v := range pod.Volumes {
				require.True(t, v.EmptyDir == nil || v.EmptyDir.SizeLimit != nil, "%s of %s: emptyDir %s has no size", service, name, v.Name)
			}
		}
	}
}

func TestPluginsComeByInitContainers(t *testing.T) {
	args := []string{"--values", "testdata/velero-aws.yaml", "--set", "queueScheduler.plugins=false"}
	for name, d := range serviceDeployments(t, renderChart(t, args...)) {
		pod := d.Spec.Template.Spec
		if name == "queue-scheduler" {
			require.Empty(t, pod.InitContainers)
			continue
		}
		require.Equal(t, "velero/velero-plugin-for-aws:v1.14.0", pod.InitContainers[0].Image)
		require.Equal(t, []corev1.VolumeMount{{Name: "plugins", MountPath: "/target"}}, pod.InitContainers[0].VolumeMounts)
		require.Contains(t, pod.Containers[0].VolumeMounts, corev1.VolumeMount{Name: "plugins", MountPath: "/plugins"})
		require.Contains(t, pod.Containers[0].Args, "--plugin-dir=/plugins")
	}
}

func TestValuesOfVelerosChartReachTheServices(t *testing.T) {
	objects := renderChart(t, variants["velero-workload-identity"]...)
	all := serviceDeployments(t, objects)
	for service, flags := range map[string][]string{
		"manifest-indexer": {"--backup-sync-period=2m", "--store-validation-frequency=30s"}, "deletion": {"--garbage-collection-frequency=30m"},
		"queue-scheduler": {"--default-volumes-to-fs-backup=true"},
		"restore-runner":  {"--terminating-resource-timeout=20m"}, "backup-runner": {"--features=EnableCSI", "--log-format=json"},
	} {
		require.Subset(t, all[service].Spec.Template.Spec.Containers[0].Args, flags, service)
	}
	for _, service := range fleet.Services {
		account := objectNamed(objects, "ServiceAccount", chart.Release+"-"+service)
		require.Equal(t, "arn:aws:iam::123456789012:role/velero", account.GetAnnotations()["eks.amazonaws.com/role-arn"], service)
	}

	objects = renderChart(t, variants["velero-minio"]...)
	location := objectNamed(objects, "BackupStorageLocation", "minio")
	config, _, err := unstructured.NestedStringMap(location.Object, "spec", "config")
	require.NoError(t, err)
	require.Equal(t, "true", config["s3ForcePathStyle"])
	require.Contains(t, serviceDeployments(t, objects)["deletion"].Spec.Template.Spec.Containers[0].Args, "--log-level=warn")
	require.NotNil(t, objectNamed(objects, "ConfigMap", chart.Release+"-change-storage-class"))

	objects = renderChart(t, variants["velero-aws"]...)
	require.NotNil(t, objectNamed(objects, "Schedule", chart.Release+"-nightly"))
	require.NotNil(t, objectNamed(objects, "Secret", "cloud-credentials"))
	image := serviceDeployments(t, objects)["deletion"].Spec.Template.Spec.Containers[0].Image
	require.True(t, strings.HasPrefix(image, "ghcr.io/holdfast-io/holdfast-deletion:") && !strings.HasSuffix(image, "v1.18.0"), image)
}

// helm upgrade --reuse-values gives the values of the earlier chart alone, which may not have had a service.
func TestValuesThatAnEarlierChartDidNotHaveHaveTheirDefaults(t *testing.T) {
	want := renderChart(t)
	for _, set := range []string{"movers=null", "volumeMover=null", "movers=null,volumeMover=null", "movers.serviceAccount=null,volumeMover.serviceAccount=null,volumeMover.args=null"} {
		objects := renderChart(t, "--set", set)
		require.Len(t, objects, len(want), set)
		for service, d := range serviceDeployments(t, want) {
			require.Equal(t, d.Spec, serviceDeployments(t, objects)[service].Spec, "%s: %s", set, service)
		}
		account := objectNamed(want, "ServiceAccount", chart.Release+"-movers")
		require.Equal(t, account, objectNamed(objects, "ServiceAccount", account.GetName()), set)
	}
	objects := renderChart(t, "--set", "movers.serviceAccount.create=false,movers.serviceAccount.name=mine,volumeMover.replicas=0,volumeMover.serviceAccount.create=false")
	require.Nil(t, objectNamed(objects, "ServiceAccount", chart.Release+"-movers"))
	require.Nil(t, objectNamed(objects, "ServiceAccount", chart.Release+"-volume-mover"))
	d := serviceDeployments(t, objects)["volume-mover"]
	require.Zero(t, *d.Spec.Replicas, "what is false or zero is no default")
	require.Contains(t, d.Spec.Template.Spec.Containers[0].Args, "--mover-service-account=mine")
}

// One value, the chart's own or that of Velero's chart, turns CSI snapshots on: in the flags of every
// service and in the rights of those that look at them.
func TestOneValueTurnsCSISnapshotsOn(t *testing.T) {
	taken := chart.Request{Verb: "create", Group: "snapshot.storage.k8s.io", Resource: "volumesnapshots"}
	for _, values := range [][]string{{"--set", "features={EnableCSI}"}, {"--set", "features=EnableCSI"}, {"--set", "configuration.features=EnableCSI"}} {
		objects := renderChart(t, values...)
		for service, d := range serviceDeployments(t, objects) {
			require.Contains(t, d.Spec.Template.Spec.Containers[0].Args, "--features=EnableCSI", service)
		}
		require.True(t, taken.AllowedBy(roleRules(t, objects, ofService("backup-runner"))), values)
	}
	require.False(t, taken.AllowedBy(roleRules(t, renderChart(t), ofService("backup-runner"))))
}

// The definitions of the chart are those that controller-gen makes; `make generate` copies them.
func TestTheChartHasTheDefinitions(t *testing.T) {
	dir, err := chart.Dir()
	require.NoError(t, err)
	root, err := testbed.RepositoryRoot()
	require.NoError(t, err)
	out, err := exec.CommandContext(t.Context(), "diff", "-r", "--exclude=*.go", filepath.Join(root, "pkg", "apis", "crds"), filepath.Join(dir, "crds")).CombinedOutput()
	require.NoError(t, err, string(out))
}
