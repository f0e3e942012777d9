//go:build node

package install

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-io/holdfast/e2e/harness/csistorage"
	"github.com/holdfast-io/holdfast/e2e/harness/node"
	"github.com/holdfast-io/holdfast/e2e/harness/volumefiles"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/apis/velero/v2alpha1"
)

// safe has a Pod with the files of one claim and the device of another one, which does nothing with them.
const (
	safe      = "safe"
	keeperPod = "keeper-0"
	keeper    = `
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: keeper, namespace: safe}
spec:
  serviceName: keeper
  selector: {matchLabels: {app: keeper}}
  template:
    metadata: {labels: {app: keeper}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
        - name: keeper
          image: ` + node.TestImage + `
          imagePullPolicy: Never
          command: [sleep, "1000000"]
          volumeMounts: [{name: files, mountPath: /files}]
          volumeDevices: [{name: disk, devicePath: /dev/disk}]
  volumeClaimTemplates:
    - metadata: {name: files}
      spec: {storageClassName: ` + csistorage.Late + `, accessModes: [ReadWriteOnce], resources: {requests: {storage: 64Mi}}}
    - metadata: {name: disk}
      spec: {storageClassName: ` + csistorage.Class + `, volumeMode: Block, accessModes: [ReadWriteOnce], resources: {requests: {storage: 24Mi}}}
`
	// fill writes two MiB into the middle of the disk, which the driver has to find when it cuts a snapshot.
	fill = "dd if=/dev/urandom of=/dev/disk bs=1M seek=11 count=2 conv=notrunc,fsync 2>/dev/null"
	// look into both volumes as the application does.
	sums = "sha256sum /dev/disk /files/tables/rows /files/sparse && stat -c %s /files/sparse"
)

// TestMovedSnapshotsOnANode moves the data of a file volume and a block volume to the bucket, with a CSI driver that has
// registered with the kubelet, and restores it after the loss of both, in their namespace and in another one. Nothing of
// that is left on the node, nor loop devices of an application that runs when the node goes.
func TestMovedSnapshotsOnANode(t *testing.T) {
	var b *bed
	t.Cleanup(func() { // after the node
		if b != nil {
			assert.Empty(t, b.loopDevices(t))
		}
	})
	b = newBed(t)
	driver := node.DriverDir(b.dir)
	storage := csistorage.Serve(t, b.config, b.kubeconfig, driver, b.client)
	b.installChart(t, "--set", "features={EnableCSI}")
	t.Cleanup(func() {
		if t.Failed() {
			b.logPods(t)
		}
	})
	unused := b.volumeTraces(t)

	b.createNamespace(t, safe)
	object := map[string]any{}
	require.NoError(t, yaml.Unmarshal([]byte(keeper), &object))
	require.NoError(t, b.client.Create(t.Context(), unstructuredOf(object)))
	b.awaitKeeper(t, safe)
	files := func(namespace string) string {
		return filepath.Join(driver, "volumes", storage.Volume(t, namespace, "files-keeper-0"))
	}
	volumefiles.Write(t, files(safe), safe)
	b.runInPod(t, safe, keeperPod, fill)
	wantFiles, wantSums := volumefiles.Describe(t, files(safe)), b.runInPod(t, safe, keeperPod, sums)
	require.NotEqual(t, unused, b.volumeTraces(t))

	require.Contains(t, b.runHoldfast(t, "backup", "create", safe, "--include-namespaces", safe, "--snapshot-move-data", "--wait"), "Completed")
	b.requireMoved(t)
	storage.RequireNothingLeft(t, server)
	b.destroy(t, safe)
	b.awaitVolumeTraces(t, unused)
	restore := func(name, namespace string, args ...string) {
		out := b.runHoldfast(t, append([]string{"restore", "create", name, "--from-backup", safe, "--wait"}, args...)...)
		require.Contains(t, out, "Completed")
		b.awaitKeeper(t, namespace)
		require.Equal(t, wantSums, b.runInPod(t, namespace, keeperPod, sums))
		require.Equal(t, wantFiles, volumefiles.Describe(t, files(namespace)))
		storage.RequireNothingLeft(t, server)
	}
	restore("elsewhere", "safe-copy", "--namespace-mappings", safe+":safe-copy")
	b.destroy(t, "safe-copy")
	b.awaitVolumeTraces(t, unused)
	restore("there", safe)
	require.Len(t, b.loopDevices(t), 2, "one of the driver, and one of the kubelet")
}

// awaitKeeper waits until the Pod of a namespace runs.
func (b *bed) awaitKeeper(t *testing.T, namespace string) {
	t.Helper()
	require.Eventually(t, func() bool {
		set := &appsv1.StatefulSet{}
		return b.client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "keeper"}, set) == nil && set.Status.ReadyReplicas == 1
	}, patience, look, "the keeper of %s runs", namespace)
}

// requireMoved checks that the node has run a mover Pod for each claim, which has moved all of its volume.
func (b *bed) requireMoved(t *testing.T) {
	t.Helper()
	uploads, events := &v2alpha1.DataUploadList{}, &corev1.EventList{}
	require.NoError(t, b.client.List(t.Context(), uploads, client.InNamespace(server), client.MatchingLabels{velerov1.LabelBackupName: safe}))
	require.NoError(t, b.client.List(t.Context(), events, client.InNamespace(server)))
	require.Len(t, uploads.Items, 2)
	for i := range uploads.Items {
		u := &uploads.Items[i]
		require.Equal(t, "Completed", string(u.Status.Phase), "%s: %s", u.Spec.SourcePVC, u.Status.Message)
		require.Equal(t, node.Name, u.Status.Node)
		require.GreaterOrEqual(t, u.Status.Progress.BytesDone, int64(16<<20))
		require.True(t, slices.ContainsFunc(events.Items, func(e corev1.Event) bool {
			return e.InvolvedObject.Kind == "Pod" && e.InvolvedObject.Name == u.Name && e.Reason == "Started"
		}), "the mover Pod of %s has started", u.Spec.SourcePVC)
	}
}

// volumeTraces returns what the node has because of volumes of the driver: these, mounts, loop devices, and the mover Pods' directories.
func (b *bed) volumeTraces(t *testing.T) []string {
	t.Helper()
	found := b.loopDevices(t)
	for _, pattern := range []string{"volumes/*", "snapshots/*"} {
		paths, err := filepath.Glob(filepath.Join(node.DriverDir(b.dir), pattern))
		require.NoError(t, err)
		found = append(found, paths...)
	}
	mounts, err := node.Mounts(b.dir)
	require.NoError(t, err)
	return append(found, slices.DeleteFunc(mounts, func(path string) bool {
		return !strings.Contains(path, "csi") && !strings.Contains(path, "volumeDevices")
	})...)
}

// awaitVolumeTraces waits until the node has these traces of volumes and no others.
func (b *bed) awaitVolumeTraces(t *testing.T, want []string) {
	t.Helper()
	var have []string
	if !assert.Eventually(t, func() bool { have = b.volumeTraces(t); return slices.Equal(want, have) }, patience, look, "no volume is left on the node") {
		require.Equal(t, want, have)
	}
}

// loopDevices returns the files behind the loop devices of the node. Other programs of the machine may have some too.
func (b *bed) loopDevices(t *testing.T) (files []string) {
	t.Helper()
	paths, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	require.NoError(t, err)
	for _, path := range paths {
		file, err := os.ReadFile(path)
		if err != nil { // the device has been detached meanwhile
			continue
		}
		if name := string(file); strings.HasPrefix(name, b.dir+"/") || strings.HasPrefix(name, "/var/lib/kubelet/") {
			files = append(files, name)
		}
	}
	return files
}
