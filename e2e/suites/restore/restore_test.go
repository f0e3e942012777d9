package restore_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace/noop"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/chart"
	"github.com/holdfast-io/holdfast/e2e/harness/compare"
	"github.com/holdfast-io/holdfast/e2e/harness/seed"
	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
	"github.com/holdfast-io/holdfast/pkg/apis/crds"
	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/jobtest"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/messaging"
	"github.com/holdfast-io/holdfast/pkg/service"
	workv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/work/v1"
	"github.com/holdfast-io/holdfast/services/restore-runner/app"
)

// bench is a cluster with a location, a NATS server and one restore-runner. The test itself does
// what queue-scheduler does.
type bench struct {
	cluster *testbed.Cluster
	config  *rest.Config
	client  client.Client
	bucket  string
	nats    *messaging.Client
	ledger  *ledger.Ledger
	runner  string // where it answers
	audit   *chart.Audit
}

func startBench(t *testing.T) *bench {
	t.Helper()
	audit := chart.NewAudit(t, "velero")
	b := &bench{cluster: testbed.StartT(t, audit.Configure), audit: audit}
	b.config = b.cluster.RestConfig()
	require.NoError(t, crds.Install(t.Context(), b.config))
	c, err := client.New(b.config, client.Options{Scheme: kube.Scheme()})
	require.NoError(t, err)
	b.client = c
	b.ledger = ledger.New(c, c, "velero")
	objects := t.TempDir()
	b.bucket = filepath.Join(objects, "backups")
	require.NoError(t, os.MkdirAll(b.bucket, 0o755))
	require.NoError(t, c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "velero"}}))
	require.NoError(t, c.Create(t.Context(), &velerov1.BackupStorageLocation{
		ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "default"},
		Spec: velerov1.BackupStorageLocationSpec{Provider: holdfast.ProviderFile, Config: map[string]string{"path": objects},
			StorageType: velerov1.StorageType{ObjectStorage: &velerov1.ObjectStorageLocation{Bucket: "backups"}}},
	}))
	url := testbed.StartNATST(t)
	b.nats, err = messaging.Connect(t.Context(), messaging.Config{URL: url, Name: "test", Log: slog.New(slog.DiscardHandler), Clock: clock.RealClock{},
		Installation: service.Installation(c, "velero")})
	require.NoError(t, err)
	t.Cleanup(b.nats.Close)
	b.startRunner(t, url)
	return b
}

func (b *bench) startRunner(t *testing.T, natsURL string) {
	t.Helper()
	account, err := b.cluster.KubeconfigFor(chart.User("velero", app.Name), "system:masters")
	require.NoError(t, err)
	options := service.Defaults(app.Name, service.Ports{})
	options.Kubeconfig, options.NATSURL, options.WorkDir = account, natsURL, t.TempDir()
	config := service.NewConfig[app.Config]()
	config.Base = service.Base{
		Name: app.Name, Instance: "restore-runner-test", Options: options,
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Clock: clock.RealClock{}, Tracer: noop.NewTracerProvider(),
	}
	runner, err := app.New(t.Context(), config)
	require.NoError(t, err)
	b.runner = runner.GRPCAddr()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- runner.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
}

// createBackup makes a Backup object as sync makes it for one found in the bucket, and the tarball as
// Velero writes it.
func (b *bench) createBackup(t *testing.T, name string) *veleroBackup {
	t.Helper()
	now := metav1.Now()
	backup := &velerov1.Backup{
		TypeMeta:   metav1.TypeMeta{APIVersion: "velero.io/v1", Kind: "Backup"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: name, Labels: map[string]string{velerov1.LabelStorageLocation: "default"}},
		Spec:       velerov1.BackupSpec{StorageLocation: "default"},
		Status: velerov1.BackupStatus{Version: 1, FormatVersion: "1.1.0", Phase: velerov1.BackupPhaseCompleted,
			StartTimestamp: &now, CompletionTimestamp: &now},
	}
	require.NoError(t, b.client.Create(t.Context(), backup.DeepCopy()))
	return newVeleroBackup(t, b.bucket, backup)
}

// runRestore creates a Restore, admits it and waits for its end.
func (b *bench) runRestore(t *testing.T, name string, spec velerov1.RestoreSpec, change ...func(*velerov1.Restore)) *velerov1.Restore {
	t.Helper()
	restore := &velerov1.Restore{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: name}, Spec: spec}
	for _, c := range change {
		c(restore)
	}
	require.NoError(t, b.client.Create(t.Context(), restore))
	require.NoError(t, jobtest.Admit(t.Context(), b.ledger, ledger.Entry{
		UID: restore.UID, Kind: ledger.KindRestore, Namespace: "velero", Name: name, Namespaces: []string{ledger.All}, Since: time.Now(),
	}, ledger.Limits{}))
	require.NoError(t, b.nats.Publish(t.Context(), messaging.WorkRestoreRun, &workv1.Hint{
		Kind: "Restore", Namespace: "velero", Name: name, Uid: string(restore.UID),
	}))
	require.Eventually(t, func() bool {
		require.NoError(t, b.client.Get(t.Context(), client.ObjectKeyFromObject(restore), restore))
		return restore.Status.Phase.Terminal()
	}, testbed.Patience, 100*time.Millisecond, "restore %s ends", name)
	entry, _, err := b.ledger.Get(t.Context(), restore.UID)
	require.NoError(t, err)
	require.NoError(t, b.ledger.Withdraw(t.Context(), entry))
	return restore
}

// readFile reads a published file of a restore.
func (b *bench) readFile(t *testing.T, restore, name string) string {
	t.Helper()
	return readGzip(t, b.bucket, "restores", restore, name)
}

// readActions reads the resource list: object -> what became of it.
func (b *bench) readActions(t *testing.T, restore string) map[string]string {
	t.Helper()
	var list map[string][]string
	require.NoError(t, json.Unmarshal([]byte(b.readFile(t, restore, "restore-"+restore+"-resource-list.json.gz")), &list))
	out := map[string]string{}
	for kind, entries := range list {
		for _, entry := range entries {
			i := strings.LastIndexByte(entry, '(') // a name may hold one too
			require.Positive(t, i, entry)
			out[kind+" "+entry[:i]] = strings.TrimSuffix(entry[i+1:], ")")
		}
	}
	return out
}

func (b *bench) readMessages(t *testing.T, restore string) string {
	t.Helper()
	return b.readFile(t, restore, "restore-"+restore+"-results.gz")
}

// TestVeleroBackupComesBack saves a sample estate the way Velero would, removes it, and restores
// it.
func TestVeleroBackupComesBack(t *testing.T) {
	b := startBench(t)
	estate := seed.Options{}
	created, err := seed.Apply(t.Context(), b.config, estate)
	require.NoError(t, err)
	scope := compare.Scope{Namespaces: estate.Namespaces(), Selector: seed.Selector()}
	before, err := compare.Take(t.Context(), b.config, scope)
	require.NoError(t, err)
	backup := b.createBackup(t, "foreign")
	backup.addCluster(t, b.config, estate.Namespaces(), seed.Selector())
	backup.closeTarball(t)
	require.GreaterOrEqual(t, backup.n, created)
	_, err = seed.Remove(t.Context(), b.config)
	require.NoError(t, err)

	restore := b.runRestore(t, "everything", velerov1.RestoreSpec{BackupName: "foreign"})
	require.Equal(t, velerov1.RestorePhaseCompleted, restore.Status.Phase, "%s %s", restore.Status.FailureReason, messagesOf(t, b, restore))
	require.Zero(t, restore.Status.Errors)
	require.NotNil(t, restore.Status.StartTimestamp)
	require.NotNil(t, restore.Status.CompletionTimestamp)
	require.Equal(t, restore.Status.Progress.TotalItems, restore.Status.Progress.ItemsRestored)
	require.Contains(t, restore.Finalizers, velerov1.RestoreFinalizer)
	report, _, err := compare.DiffLive(t.Context(), b.config, scope, before, time.Minute)
	require.NoError(t, err)
	require.True(t, report.Same(), "%s", report)
	require.Greater(t, report.Owned, 50, "objects have their owners back")

	t.Run("files", func(t *testing.T) {
		actions := b.readActions(t, "everything")
		require.Len(t, actions, restore.Status.Progress.TotalItems)
		require.Equal(t, "[]\n", b.readFile(t, "everything", "restore-everything-itemoperations.json.gz"))
		require.Equal(t, "[]\n", b.readFile(t, "everything", "everything-volumeinfo.json.gz"))
		require.Contains(t, b.readFile(t, "everything", "restore-everything-logs.gz"), "restore=velero/everything")
		records, err := filepath.Glob(filepath.Join(b.bucket, "restores/everything/records", string(restore.UID), "*"))
		require.NoError(t, err)
		require.NotEmpty(t, records)
		require.NotContains(t, b.readFile(t, "everything", "restore-everything-logs.gz"), "cGFzc3dvcmQ", "no contents of Secrets")
	})

	t.Run("one namespace under another name", func(t *testing.T) {
		shop := estate.Namespaces()[0]
		mapped := b.runRestore(t, "mapped", velerov1.RestoreSpec{BackupName: "foreign", IncludedNamespaces: []string{shop},
			NamespaceMapping: map[string]string{shop: "elsewhere"}})
		require.Equal(t, velerov1.RestorePhaseCompleted, mapped.Status.Phase, messagesOf(t, b, mapped))
		var list corev1.SecretList
		require.NoError(t, b.client.List(t.Context(), &list, client.InNamespace("elsewhere")))
		require.NotEmpty(t, list.Items)
		for _, s := range list.Items {
			require.Equal(t, "mapped", s.Labels[velerov1.LabelRestoreName])
			require.Equal(t, "foreign", s.Labels[velerov1.LabelBackupName])
		}
		for object := range b.readActions(t, "mapped") {
			require.NotContains(t, object, " "+shop+"/")
		}
	})
}

// messagesOf reads the results where there are any.
func messagesOf(t *testing.T, b *bench, restore *velerov1.Restore) string {
	t.Helper()
	if restore.Status.Phase == velerov1.RestorePhaseFailed {
		return restore.Status.FailureReason
	}
	return fmt.Sprintf("%d errors: %s", restore.Status.Errors, b.readMessages(t, restore.Name))
}
