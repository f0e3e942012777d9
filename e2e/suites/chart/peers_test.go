package chart_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-io/holdfast/e2e/harness/chart"
	"github.com/holdfast-io/holdfast/e2e/harness/fleet"
)

// As many copies of streams as the chart's NATS has servers, without a value of its own.
func TestStreamsHaveACopyPerServer(t *testing.T) {
	for want, set := range map[string]string{
		"--nats-stream-replicas=3": "nats.replicas=3", "": "nats.replicas=1", "--nats-stream-replicas=1": "nats.replicas=3,nats.streamReplicas=1",
		"--nats-stream-replicas=5": "nats.enabled=false,nats.url=nats://nats,nats.streamReplicas=5",
	} {
		for service, d := range serviceDeployments(t, renderChart(t, "--set", set)) {
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
	require.Nil(t, objectNamed(renderChart(t), "ServiceMonitor", chart.Release))
	require.Nil(t, objectNamed(renderChart(t, "--set", on), "ServiceMonitor", chart.Release), "the cluster does not serve the kind")
	require.NotNil(t, objectNamed(renderChart(t, "--set", on+",metrics.serviceMonitor.autodetect=false"), "ServiceMonitor", chart.Release))
	objects := renderChart(t, "--set", on, "--api-versions", known)
	monitor := objectNamed(objects, "ServiceMonitor", chart.Release)
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

// Pods of the release reach NATS, and its servers one another; a runner is reached by runners,
// async-operation-monitor and those who may call, other services by the latter only.
func TestOnlyPeersAreLetIn(t *testing.T) {
	objects := renderChart(t, "--set", "nats.replicas=3,networkPolicy.callersFrom[0].podSelector.matchLabels.a=caller")
	from := func(component, port string) []map[string]string {
		var policy networkingv1.NetworkPolicy
		object := objectNamed(objects, "NetworkPolicy", chart.Release+"-"+component)
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
			want = []map[string]string{with("async-operation-monitor"), with("backup-runner"), with("restore-runner"), caller}
		}
		require.Equal(t, want, from(service, "grpc"), service)
	}
}

// The alerts and the dashboard are objects of the chart where they are wanted and can be: the text
// of their files, which other tests are about.
func TestAlertsAndTheDashboardAreThere(t *testing.T) {
	const on, known = "metrics.prometheusRule.enabled=true,metrics.prometheusRule.additionalLabels.release=prometheus,metrics.grafanaDashboard.enabled=true", "monitoring.coreos.com/v1"
	dashboard := chart.Release + "-dashboard"
	require.Nil(t, objectNamed(renderChart(t), "PrometheusRule", chart.Release))
	require.Nil(t, objectNamed(renderChart(t), "ConfigMap", dashboard))
	require.Nil(t, objectNamed(renderChart(t, "--set", on), "PrometheusRule", chart.Release), "the cluster does not serve the kind")
	require.Nil(t, objectNamed(renderChart(t, "--set", on+",metrics.enabled=false", "--api-versions", known), "PrometheusRule", chart.Release))
	require.NotNil(t, objectNamed(renderChart(t, "--set", on+",metrics.prometheusRule.autodetect=false"), "PrometheusRule", chart.Release))

	objects := renderChart(t, "--set", on+",metrics.prometheusRule.spec[0].alert=Mine,metrics.prometheusRule.spec[0].expr=up == 0", "--api-versions", known)
	rule := objectNamed(objects, "PrometheusRule", chart.Release)
	require.Equal(t, "prometheus", rule.GetLabels()["release"])
	groups, _, err := unstructured.NestedSlice(rule.Object, "spec", "groups")
	require.NoError(t, err)
	require.Len(t, groups, 2)
	dir, err := chart.Dir()
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(dir, "files", "alerts.yaml"))
	require.NoError(t, err)
	var file map[string]any
	require.NoError(t, yaml.Unmarshal(text, &file))
	require.Equal(t, file["groups"].([]any)[0], groups[0])
	require.Equal(t, []any{map[string]any{"alert": "Mine", "expr": "up == 0"}}, groups[1].(map[string]any)["rules"])

	config := objectNamed(objects, "ConfigMap", dashboard)
	require.Equal(t, "1", config.GetLabels()["grafana_dashboard"])
	data, _, err := unstructured.NestedString(config.Object, "data", "holdfast.json")
	require.NoError(t, err)
	text, err = os.ReadFile(filepath.Join(dir, "files", "dashboard.json"))
	require.NoError(t, err)
	require.JSONEq(t, string(text), data)
}
