package schedule

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/product"
	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/kube"
)

const patience = testbed.Patience

// often is a schedule as people write it, beside what Argo CD adds.
const often = `
apiVersion: velero.io/v1
kind: Schedule
metadata:
  name: often
  namespace: velero
  labels: {team: shop, argocd.argoproj.io/instance: shop}
  annotations: {note: kept, holdfast.io/concurrency-policy: Forbid, holdfast.io/spread-window: 1s}
spec:
  schedule: "@every 5s"
  useOwnerReferencesInBackup: true
  template:
    includedNamespaces: [default]
    ttl: 1h
`

const broken = `
apiVersion: velero.io/v1
kind: Schedule
metadata: {name: broken, namespace: velero, annotations: {holdfast.io/spread-window: soon}}
spec: {schedule: "CRON_TZ=Mars/Base 0 1 * * *", template: {}}
`

type bed struct {
	client     client.Client
	kubeconfig string
}

func (b *bed) applyManifest(t *testing.T, manifest string) {
	t.Helper()
	kubectl, err := testbed.Binary("kubectl")
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), kubectl, "--kubeconfig", b.kubeconfig, "apply", "-f", "-")
	cmd.Stdin = strings.NewReader(manifest)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

func (b *bed) getSchedule(t *testing.T, name string) *velerov1.Schedule {
	t.Helper()
	s := &velerov1.Schedule{}
	require.NoError(t, b.client.Get(t.Context(), types.NamespacedName{Namespace: "velero", Name: name}, s))
	return s
}

// backupsOf are the Backups of a schedule.
func (b *bed) backupsOf(t *testing.T, name string) []velerov1.Backup {
	t.Helper()
	list := &velerov1.BackupList{}
	require.NoError(t, b.client.List(t.Context(), list, client.InNamespace("velero"), client.MatchingLabels{velerov1.LabelScheduleName: name}))
	return list.Items
}

func (b *bed) completedBackups(t *testing.T, name string) (completed []velerov1.Backup) {
	t.Helper()
	for _, backup := range b.backupsOf(t, name) {
		if backup.Status.Phase == velerov1.BackupPhaseCompleted {
			completed = append(completed, backup)
		}
	}
	return completed
}

func TestSchedule(t *testing.T) {
	cluster := testbed.StartT(t)
	c, err := client.New(cluster.RestConfig(), client.Options{Scheme: kube.Scheme()})
	require.NoError(t, err)
	binary, err := testbed.Product("holdfast")
	require.NoError(t, err)
	cli := &product.CLI{Binary: binary, Kubeconfig: cluster.Kubeconfig(), Namespace: "velero", Output: t.Output()}
	server, err := cli.Up(t.Context(), t.TempDir(), "--free-ports")
	require.NoError(t, err)
	t.Cleanup(server.Shutdown)
	b := &bed{client: c, kubeconfig: cluster.Kubeconfig()}
	t.Run("makes backups that complete", func(t *testing.T) { makesBackups(t, b) })
	t.Run("says what is wrong", func(t *testing.T) { saysWhatIsWrong(t, b) })
}

func makesBackups(t *testing.T, b *bed) {
	t.Helper()
	b.applyManifest(t, often)
	require.Eventually(t, func() bool { return len(b.completedBackups(t, "often")) > 1 }, patience, 200*time.Millisecond)
	s := b.getSchedule(t, "often")
	require.Equal(t, velerov1.SchedulePhaseEnabled, s.Status.Phase)
	require.NotNil(t, s.Status.LastBackup)
	require.Contains(t, s.Annotations, "kubectl.kubernetes.io/last-applied-configuration")

	backup := b.completedBackups(t, "often")[0]
	require.Regexp(t, `^often-20\d{12}$`, backup.Name)
	slot, err := time.Parse("20060102150405", strings.TrimPrefix(backup.Name, "often-"))
	require.NoError(t, err)
	require.WithinRange(t, backup.CreationTimestamp.Time, slot, slot.Add(2*time.Minute))
	require.Equal(t, "shop", backup.Labels["team"])
	require.NotContains(t, backup.Labels, "argocd.argoproj.io/instance")
	require.Equal(t, "kept", backup.Annotations["note"])
	require.NotContains(t, backup.Annotations, "kubectl.kubernetes.io/last-applied-configuration")
	require.NotContains(t, backup.Annotations, "holdfast.io/spread-window")
	require.Equal(t, []string{"default"}, backup.Spec.IncludedNamespaces)
	require.Len(t, backup.OwnerReferences, 1)
	require.Equal(t, s.UID, backup.OwnerReferences[0].UID)

	// Paused, it makes no more once what it promised is made.
	require.NoError(t, kube.Update(t.Context(), b.client, b.client, s, func(s *velerov1.Schedule) error { s.Spec.Paused = true; return nil }))
	require.Eventually(t, func() bool {
		for _, backup := range b.backupsOf(t, "often") {
			if !backup.Status.Phase.Terminal() {
				return false
			}
		}
		return true
	}, patience, 200*time.Millisecond)
	last := b.getSchedule(t, "often").Status.LastBackup
	require.Eventually(t, func() bool { return time.Since(last.Time) > 12*time.Second }, patience, time.Second, "two more slots go by")
	require.Equal(t, last, b.getSchedule(t, "often").Status.LastBackup)
}

func saysWhatIsWrong(t *testing.T, b *bed) {
	t.Helper()
	b.applyManifest(t, broken)
	require.Eventually(t, func() bool { return b.getSchedule(t, "broken").Status.Phase == velerov1.SchedulePhaseFailedValidation }, patience, 200*time.Millisecond)
	problems := b.getSchedule(t, "broken").Status.ValidationErrors
	require.Len(t, problems, 2)
	require.Contains(t, problems[0], "invalid schedule: provided bad location Mars/Base")
	require.Contains(t, problems[1], "metadata.annotations[holdfast.io/spread-window]")
	require.Empty(t, b.backupsOf(t, "broken"))
}
