//go:build node

package install

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-io/holdfast/e2e/harness/node"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// bank is the namespace of a writer that never rests unless its hook stops it. The hook leaves the sums and attributes of
// all files beside them. A writer that finds these does not write: what a restore brought stays as it is.
const (
	bank   = "bank"
	writer = `
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: ledger, namespace: bank}
spec:
  serviceName: ledger
  selector: {matchLabels: {app: ledger}}
  template:
    metadata:
      labels: {app: ledger}
      annotations:
        pre.hook.backup.velero.io/command: '["sh", "/script/freeze"]'
        post.hook.backup.velero.io/command: '["sh", "-c", "rm /tmp/freeze"]'
    spec:
      terminationGracePeriodSeconds: 0
      containers:
        - name: ledger
          image: ` + node.TestImage + `
          imagePullPolicy: Never
          command: [sh, /script/write]
          volumeMounts:
            - {name: data, mountPath: /volumes/data}
            - {name: index, mountPath: /volumes/index}
            - {name: archive, mountPath: /volumes/archive}
            - {name: scratch, mountPath: /volumes/scratch}
            - {name: script, mountPath: /script}
      volumes: [{name: scratch, emptyDir: {}}, {name: script, configMap: {name: script}}]
  volumeClaimTemplates:
    - {metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 64Mi}}}}
    - {metadata: {name: index}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}}
    - {metadata: {name: archive}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}}
`
	write = `
if [ ! -e /volumes/data/sums ]; then
  for v in data index archive scratch; do
    mkdir -p /volumes/$v/tables/empty
    seq 10000 > /volumes/$v/tables/rows-of-$v
    chmod 2640 /volumes/$v/tables/rows-of-$v
    chown 1234:5678 /volumes/$v/tables
    touch -d "2020-02-03 04:05:06" /volumes/$v/tables/rows-of-$v /volumes/$v/tables
    ln -s tables/rows-of-$v /volumes/$v/link
  done
  dd if=/dev/urandom of=/volumes/data/sparse bs=4096 count=1 seek=4000 2>/dev/null
  touch /tmp/written
  while :; do
    if [ -e /tmp/freeze ]; then touch /tmp/frozen; else date >> /volumes/data/log; date > /volumes/index/last; fi
    usleep 10000
  done
fi
exec sleep 1000000
`
	freeze = `
touch /tmp/freeze
until [ -e /tmp/frozen ]; do usleep 10000; done
cd /volumes
find . -type f -exec sha256sum {} + > /tmp/sums
` + attributes + ` > /tmp/attributes
mv /tmp/sums /tmp/attributes data/
`
	// attributes prints mode, owner, time and name of each entry but the volumes themselves, into which the hook writes.
	attributes = `find . -mindepth 2 ! -name sums ! -name attributes -exec stat -c '%a %u:%g %Y %N' {} + | sort -k 4`
)

// testVolumes backs up a StatefulSet with its files, destroys it with its volumes, and restores it in its namespace and in
// another one: the files are those of the moment in which the hook had stopped the writer.
func (b *bed) testVolumes(t *testing.T) {
	b.createNamespace(t, bank)
	require.NoError(t, b.client.Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: bank, Name: "script"}, Data: map[string]string{"write": write, "freeze": freeze},
	}))
	object := map[string]any{}
	require.NoError(t, yaml.Unmarshal([]byte(writer), &object))
	require.NoError(t, b.client.Create(t.Context(), unstructuredOf(object)))
	b.awaitLedger(t, bank)
	require.Eventually(t, func() bool { return b.tryIn(t, bank, "test -e /tmp/written") == nil }, patience, look, "the writer writes")

	require.Contains(t, b.runHoldfast(t, "backup", "create", "ledger", "--include-namespaces", bank, "--default-volumes-to-fs-backup", "--wait"), "Completed")
	b.awaitCompleted(t, "ledger")
	requests := &velerov1.PodVolumeBackupList{}
	require.NoError(t, b.client.List(t.Context(), requests, client.InNamespace(server), client.MatchingLabels{velerov1.LabelBackupName: "ledger"}))
	require.Len(t, requests.Items, 4, "three claims and the emptyDir")
	require.Eventually(t, func() bool { return b.tryIn(t, bank, "! test -e /tmp/freeze") == nil }, patience, look, "the writer goes on")

	b.destroy(t, bank)
	require.Contains(t, b.runHoldfast(t, "restore", "create", "ledger", "--from-backup", "ledger", "--wait"), "Completed")
	b.requireLedger(t, bank)
	require.Contains(t, b.runHoldfast(t, "restore", "create", "branch", "--from-backup", "ledger", "--namespace-mappings", bank+":branch", "--wait"), "Completed")
	b.requireLedger(t, "branch")
	b.awaitNoMovers(t)
	b.destroy(t, bank)
	b.destroy(t, "branch")
}

// awaitLedger waits until the writer of a namespace runs.
func (b *bed) awaitLedger(t *testing.T, namespace string) {
	t.Helper()
	require.Eventually(t, func() bool {
		set := &appsv1.StatefulSet{}
		return b.client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "ledger"}, set) == nil && set.Status.ReadyReplicas == 1
	}, patience, look, "the writer of %s runs", namespace)
}

// requireLedger compares the files of a restored writer with what the hook has noted.
func (b *bed) requireLedger(t *testing.T, namespace string) {
	t.Helper()
	b.awaitLedger(t, namespace)
	sums := b.runIn(t, namespace, "cd /volumes && sha256sum -c data/sums")
	require.NotContains(t, sums, "FAILED")
	require.GreaterOrEqual(t, strings.Count(sums, ": OK"), 7, sums) // a file of each volume, the sparse one, the log, the last line
	require.Equal(t, b.runIn(t, namespace, "cat /volumes/data/attributes"), b.runIn(t, namespace, "cd /volumes && "+attributes))
	require.Equal(t, "ok\n", b.runIn(t, namespace, "test $(stat -c %b /volumes/data/sparse) -lt 1000 && echo ok"), "the file has holes")
	require.Empty(t, b.runIn(t, namespace, "ls -d /volumes/*/.velero 2>/dev/null || true"))
}

// runIn runs a command of the shell in the writer of a namespace.
func (b *bed) runIn(t *testing.T, namespace, command string) string {
	t.Helper()
	return b.runInPod(t, namespace, "ledger-0", command)
}

// tryIn is runIn for a command that may fail.
func (b *bed) tryIn(t *testing.T, namespace, command string) error {
	t.Helper()
	return b.tryInPod(t, namespace, "ledger-0", command)
}

// destroy deletes a namespace, and waits until it is gone with its volumes.
func (b *bed) destroy(t *testing.T, namespace string) {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	require.NoError(t, b.client.Delete(t.Context(), ns))
	require.Eventually(t, func() bool {
		volumes := &corev1.PersistentVolumeList{}
		if !apierrors.IsNotFound(b.client.Get(t.Context(), client.ObjectKeyFromObject(ns), ns)) || b.client.List(t.Context(), volumes) != nil {
			return false
		}
		for i := range volumes.Items {
			if ref := volumes.Items[i].Spec.ClaimRef; ref != nil && ref.Namespace == namespace {
				return false
			}
		}
		return true
	}, patience, look, "namespace %s and its volumes are gone", namespace)
}
