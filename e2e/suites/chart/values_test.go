package chart_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/e2e/harness/chart"
)

const namespace = "velero"

// wrong are values that are refused, each with what the message has to name.
var wrong = []struct{ set, names string }{
	{"backuprunner.replicas=1", "'backuprunner'"},
	{"backupRunner.replica=1", "'replica'"},
	{"backupRunner.replicas=many", "/backupRunner/replicas"},
	{"restoreRunner.replicas=-1", "/restoreRunner/replicas"},
	{"deletion.plugins=maybe", "/deletion/plugins"},
	{"deletion.workDirSize=large", "/deletion/workDirSize"},
	{"queueScheduler.terminationGracePeriodSeconds=0", "/queueScheduler/terminationGracePeriodSeconds"},
	{"queueScheduler.args.--workers=1", "'--workers'"},
	{"backupRunner.args.namespace=other", "backupRunner.args.namespace"},
	{"restoreRunner.args.nats-url=nats://x", "restoreRunner.args.nats-url"},
	{"deletion.args.features=EnableCSI", "deletion.args.features"},
	{"backupRunner.args.operation-drain-timeout=10m", "backupRunner.args.operation-drain-timeout"},
	{"backupRunner.extraRules[0].apiGroups[0]=x", "/backupRunner/extraRules/0"},
	{"manifestIndexer.artifactURL=http://plain", "/manifestIndexer/artifactURL"},
	{"auth=tls", "/auth"},
	{"auth=none", "tls.mode"},
	{"auth=none,tls.mode=none,authAudience=holdfast", "authAudience"},
	{"tls.mode=letsencrypt", "/tls/mode"},
	{"tls.mode=secret", "tls.secretName"},
	{"tls.secretName=certificates", "tls.secretName"},
	{"tls.mode=secret,tls.secretName=Not_A_Name", "/tls/secretName"},
	{"tls.mode=certManager", "tls.certManager.issuerRef.name"},
	{"tls.mode=none,tls.clientCASecret=callers", "tls.clientCASecret"},
	{"tls.validityDays=1", "/tls/validityDays"},
	{"tls.requireClientCertificates=true", "'requireClientCertificates'"},
	{"nats.caSecret.name=authority", "nats.caSecret"},
	{"nats.enabled=false,nats.url=nats://x,nats.tlsSecret=x", "nats.tlsSecret"},
	{"deletion.args.tls-client-ca-file=/x", "deletion.args.tls-client-ca-file"},
	{"features=EnableAPIGroupVersions", "/features"},
	{"logLevel=verbose", "/logLevel"},
	{"image.pullPolicy=Sometimes", "/image/pullPolicy"},
	{"initContainers[0].name=plugin", "/initContainers/0"},
	{"nats.replicas=2", "/nats/replicas"},
	{"nats.enabled=false", "nats.url"},
	{"nats.enabled=false,nats.url=http://nats", "/nats/url"},
	{"nats.urlSecret.name=mine", "nats.urlSecret.name"},
	{"ipFamilyPolicy=DualStack", "/ipFamilyPolicy"},
	{"nats.streamReplicas=2", "/nats/streamReplicas"},
	{"nats.streamReplicas=3", "nats.streamReplicas"},
	{"deletion.args.nats-stream-replicas=3", "deletion.args.nats-stream-replicas"},
	{"upgradeCRDs=perhaps", "/upgradeCRDs"},
	{"cleanup.enabled=perhaps", "/cleanup/enabled"},
	{"cleanup.now=true", "/cleanup"},
	{"cleanup.timeoutSeconds=5", "/cleanup/timeoutSeconds"},
	{"upgradeJobResources.cpu=1", "/upgradeJobResources"},
	{"metrics.serviceMonitor.enabled=perhaps", "/metrics/serviceMonitor/enabled"},
	{"metrics.serviceMonitors.enabled=true", "'serviceMonitors'"},
	{"metrics.scrapeInterval=often", "/metrics/scrapeInterval"},
	{"metrics.prometheusRule.enabled=perhaps", "/metrics/prometheusRule/enabled"},
	{"metrics.prometheusRule.spec[0].alert=Mine", "/metrics/prometheusRule/spec/0"},
	{"metrics.grafanaDashboard.labels=grafana", "/metrics/grafanaDashboard/labels"},
	{"metrics.grafanaDashboards.enabled=true", "'grafanaDashboards'"},
	{"configuration.backupStorageLocation[0].provider=aws", "/configuration/backupStorageLocation/0"},
	{"configuration.backupStorageLocation[0].provider=aws,configuration.backupStorageLocation[0].bucket=b,configuration.backupStorageLocation[0].accessMode=RW", "/accessMode"},
	{"configuration.volumeSnapshotLocation[0].name=x", "/configuration/volumeSnapshotLocation/0"},
	{"configuration.backupSyncPeriod=5", "/configuration/backupSyncPeriod"},
	{"configuration.defaultBackupTTL=30d", "/configuration/defaultBackupTTL"},
	{"configuration.itemBlockWorkerCount=0", "/configuration/itemBlockWorkerCount"},
	{"schedules.daily.paused=true", "/schedules/daily"},
	{"credentials.useSecret=yes", "/credentials/useSecret"},
}

// refused are values of Velero's chart that would do something else than they do there.
var refused = []string{
	"configuration.restoreOnlyMode=true",
	"configuration.restoreResourcePriorities=pods", "configuration.disableControllers=backup", "configuration.extraArgs={--x}", "configuration.pluginDir=/p",
	"configuration.namespace=other", "configuration.provider=aws", "cleanUpCRDs=true", "lifecycle.preStop=x",
}

func TestWrongValuesAreRefusedByName(t *testing.T) {
	for _, c := range wrong {
		_, err := chart.Render(t.Context(), t.TempDir(), namespace, "--set", c.set)
		require.ErrorContains(t, err, c.names, c.set)
	}
	for _, set := range refused {
		key, _, _ := strings.Cut(set, "=")
		_, err := chart.Render(t.Context(), t.TempDir(), namespace, "--set", set)
		require.ErrorContains(t, err, strings.TrimSuffix(key, ".preStop")+": ", set)
	}
}

func TestTheChartHasNoMistakeThatHelmFinds(t *testing.T) {
	dir, err := chart.Dir()
	require.NoError(t, err)
	_, err = chart.Helm(t.Context(), t.TempDir(), "lint", "--strict", dir)
	require.NoError(t, err)
}

// What has no effect is said after the installation, with the reason.
func TestValuesWithoutEffectAreWarnedOf(t *testing.T) {
	dir, err := chart.Dir()
	require.NoError(t, err)
	for values, keys := range map[string][]string{
		"testdata/velero-aws.yaml":               {"image.repository"},
		"testdata/velero-workload-identity.yaml": {"configuration.clientQPS", "configuration.uploaderType", "nodeAgent", "rbac.clusterAdministrator", "serviceAccount.server.name"},
		"testdata/velero-minio.yaml":             {"kubectl"},
	} {
		out, err := chart.Helm(t.Context(), t.TempDir(), "install", chart.Release, dir, "--dry-run=client", "--values", values)
		require.NoError(t, err)
		for _, key := range keys {
			require.Contains(t, out, "WARNING: "+key+" has no effect: ", values)
		}
	}
}
