package operations

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/chart"
	"github.com/holdfast-io/holdfast/e2e/harness/site"
	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost/selfplugin"
	"github.com/holdfast-io/holdfast/pkg/service/certtest"
	operationv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/operation/v1"
	queuev1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/queue/v1"
)

// pollInterval is how often operations are asked about.
const pollInterval = time.Second

// bed is a site with one of every service, the plugins, and what the plugins' operations live in.
type bed struct {
	*site.Site
	bucket     *site.Bucket
	server     *testbed.S3
	authority  *certtest.Authority // of the runners and the monitor, which calls them by address
	tokenFile  string              // of an account that may call the monitor and, through it, the runners
	calls      callNotes
	works      client.Client
	controller *controller
	queue      queuev1.QueueServiceClient
	monitor    operationv1.OperationMonitorServiceClient
}

func newBed(t *testing.T) *bed {
	t.Helper()
	root := t.TempDir()
	b := &bed{calls: callNotes(filepath.Join(root, "calls"))}
	require.NoError(t, os.Mkdir(string(b.calls), 0o700))
	selfplugin.Link(t, filepath.Join(root, "plugins"), ownBinary, vendorBinary)
	plugins := "--plugin-dir=" + filepath.Join(root, "plugins")
	b.authority = certtest.New(t, "cluster")
	b.Site = site.Start(t, site.Config{Identities: pluginRules, Arrange: b.arrangeSite(t), Args: map[string][]string{
		"backup-runner":  append(b.certificateFlags(t, "backup-runner", runnerName("backup-runner")), plugins, "--claim-timeout=2s"),
		"restore-runner": append(b.certificateFlags(t, "restore-runner", runnerName("restore-runner")), plugins, "--claim-timeout=2s"),
		"async-operation-monitor": append(b.certificateFlags(t, "async-operation-monitor", "127.0.0.1"), "--tls-ca-file="+b.authority.CAFile,
			"--tls-server-names=backup-runner="+runnerName("backup-runner")+",restore-runner="+runnerName("restore-runner"),
			plugins, "--item-operation-sync-frequency="+pollInterval.String(), "--item-operation-cancel-grace-period=4s", "--item-operation-stall-timeout=1s", "--plugin-query-timeout=2s"),
		"queue-scheduler": {"--concurrent-backups=1", "--claim-timeout=2s"},
		"deletion":        {"--claim-timeout=2s", "--sweep-interval=1s"},
	}})
	b.controller = startController(t, b.works)
	b.server = testbed.StartS3T(t)
	b.bucket = site.S3Bucket(t, b.server, "default")
	b.ReachS3(t, b.server, b.bucket)
	b.queue = queuev1.NewQueueServiceClient(b.Dial(t, "queue-scheduler"))
	b.monitor = operationv1.NewOperationMonitorServiceClient(b.Dial(t, "async-operation-monitor", grpc.WithTransportCredentials(credentials.NewTLS(b.authority.Client(t))), grpc.WithPerRPCCredentials(b)))
	return b
}

// runnerName is what the certificate of a runner names, as in a cluster: not the address that the
// monitor calls.
func runnerName(service string) string { return "holdfast-" + service + ".velero.svc" }

// certificateFlags returns the flags of TLS of a service.
func (b *bed) certificateFlags(t *testing.T, service, name string) []string {
	t.Helper()
	own := b.authority.Issue(t, service, name)
	return []string{"--tls-cert-file=" + own.CertFile, "--tls-key-file=" + own.KeyFile}
}

// arrangeSite creates the definition of the operations' kind before any service discovers kinds, and
// has the API server decide who calls the runners and the monitor.
func (b *bed) arrangeSite(t *testing.T) func(*site.Site) map[string][]string {
	return func(s *site.Site) map[string][]string {
		d := workDefinition()
		require.NoError(t, s.Client.Create(t.Context(), d))
		require.Eventually(t, func() bool {
			if s.Client.Get(t.Context(), client.ObjectKeyFromObject(d), d) != nil {
				return false
			}
			for _, c := range d.Status.Conditions {
				if c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue {
					return true
				}
			}
			return false
		}, site.Patience, site.Look, "the definition is served")
		var err error
		b.works, err = newWorks(s.Cluster.RestConfig())
		require.NoError(t, err)
		b.tokenFile = newCaller(t, s)
		reviews := "--auth=kubernetes"
		return map[string][]string{
			"backup-runner": {reviews}, "restore-runner": {reviews},
			"async-operation-monitor": {reviews, "--auth-token-file=" + tokenFile(t, s, chart.Release+"-async-operation-monitor")},
		}
	}
}

// createOwnObject makes an object that the plugin of Holdfast's protocol begins an operation for.
func (b *bed) createOwnObject(t *testing.T, namespace, name string, o operationOrder) {
	t.Helper()
	require.NoError(t, b.Client.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: orderedMeta(t, namespace, name, o)}))
}

// createVendorObject makes an object that the plugin of Velero's protocol begins an operation for.
func (b *bed) createVendorObject(t *testing.T, namespace, name string, o operationOrder) {
	t.Helper()
	require.NoError(t, b.Client.Create(t.Context(), &corev1.Secret{ObjectMeta: orderedMeta(t, namespace, name, o)}))
}

func orderedMeta(t *testing.T, namespace, name string, o operationOrder) metav1.ObjectMeta {
	t.Helper()
	text, err := json.Marshal(o)
	require.NoError(t, err)
	return metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: map[string]string{orderKey: string(text)}}
}

// getBackup reads a backup.
func (b *bed) getBackup(t *testing.T, name string) *velerov1.Backup {
	t.Helper()
	backup := &velerov1.Backup{}
	require.NoError(t, b.Client.Get(t.Context(), client.ObjectKey{Namespace: site.Server, Name: name}, backup))
	return backup
}

// awaitWaiting returns a backup when it waits for its operations.
func (b *bed) awaitWaiting(t *testing.T, name string, phase velerov1.BackupPhase) *velerov1.Backup {
	t.Helper()
	var backup *velerov1.Backup
	require.Eventually(t, func() bool {
		backup = b.getBackup(t, name)
		return backup.Status.Phase == phase || backup.Status.Phase.Terminal()
	}, site.Patience, site.Look, "backup %s is %s", name, phase)
	require.Equal(t, phase, backup.Status.Phase, "%s: %s", name, backup.Status.FailureReason)
	return backup
}

// awaitEnd waits for a backup's end and requires this phase and these counts of operations.
func (b *bed) awaitEnd(t *testing.T, name string, phase velerov1.BackupPhase, completed, failed int) *velerov1.Backup {
	t.Helper()
	backup := b.BackupEnds(t, name)
	require.Equal(t, phase, backup.Status.Phase, "%s: %s\n%s", name, backup.Status.FailureReason, b.readResults(t, name))
	got := []int{backup.Status.BackupItemOperationsAttempted, backup.Status.BackupItemOperationsCompleted, backup.Status.BackupItemOperationsFailed}
	require.Equal(t, []int{completed + failed, completed, failed}, got, "attempted, completed and failed of %s:\n%s", name, b.readResults(t, name))
	return backup
}

// readResults is the results file of a backup that has ended; empty if there is none.
func (b *bed) readResults(t *testing.T, name string) string {
	t.Helper()
	key := "backups/" + name + "/" + name + "-results.gz"
	if !slices.Contains(b.bucket.Keys(t), key) {
		return ""
	}
	return string(b.bucket.ReadZipped(t, key))
}

func (b *bed) readLog(t *testing.T, name string) string {
	t.Helper()
	return string(b.bucket.ReadZipped(t, "backups/"+name+"/"+name+"-logs.gz"))
}
