package csi

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/csistorage"
	"github.com/holdfast-io/holdfast/e2e/harness/directorydriver"
	"github.com/holdfast-io/holdfast/e2e/harness/kubelet"
	"github.com/holdfast-io/holdfast/e2e/harness/site"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
)

const (
	driver = csistorage.Driver
	class  = csistorage.Class
	late   = csistorage.Late
)

// bed is a site whose cluster has CSI volumes and snapshots, and a node that runs commands.
type bed struct {
	*site.Site
	storage *csistorage.Storage
	driver  *directorydriver.Driver
	node    *kubelet.Node
	apps    *applications
	bucket  *site.Bucket
	dir     string // that the bucket is in
}

func newBed(t *testing.T) *bed {
	t.Helper()
	b := &bed{apps: &applications{}}
	feature := "--features=EnableCSI"
	b.Site = site.Start(t, site.Config{
		Identities: []string{"--set", "features={EnableCSI}"},
		Arrange: func(s *site.Site) map[string][]string {
			b.storage = csistorage.Start(t, s.Cluster, s.Client)
			b.driver = b.storage.Driver
			return nil
		},
		Args: map[string][]string{
			"backup-runner":           {feature, "--claim-timeout=2s"},
			"async-operation-monitor": {feature, "--item-operation-sync-frequency=1s", "--item-operation-cancel-grace-period=4s"},
			"queue-scheduler":         {feature, "--claim-timeout=2s"},
			"deletion":                {feature, "--claim-timeout=2s"},
			"restore-runner":          {feature, "--claim-timeout=2s", "--resource-timeout=1m"},
		},
	})
	b.bucket, b.dir = site.FileBucket(t, "default")
	b.ReachFiles(t, b.dir, b.bucket)
	var err error
	b.node, err = kubelet.Start(t.Context(), b.Cluster.RestConfig(), "node", &kubetest.ExecHandler{Run: b.apps.runCommand})
	require.NoError(t, err)
	t.Cleanup(b.node.Close)
	return b
}

// createClaim makes a claim, and returns the volume that it gets.
func (b *bed) createClaim(t *testing.T, namespace, name string, change ...func(*corev1.PersistentVolumeClaimSpec)) (volume string) {
	t.Helper()
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: csistorage.Spec()}
	for _, f := range change {
		f(&c.Spec)
	}
	require.NoError(t, b.Client.Create(t.Context(), c))
	return b.storage.Volume(t, namespace, name)
}

// createPod runs a Pod in a namespace of its name, with claims data-0, data-1, …, and returns their volumes.
func (b *bed) createPod(t *testing.T, name string, claims int, annotations map[string]string) (volumes []string) {
	t.Helper()
	b.Namespace(t, name)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: name, Annotations: annotations},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "db", Image: "example.com/db"}}}}
	for i := range claims {
		claim := fmt.Sprintf("data-%d", i)
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: claim, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}})
		volumes = append(volumes, b.createClaim(t, name, claim))
	}
	require.Eventually(t, func() bool { return b.node.Run(t.Context(), pod) == nil }, site.Patience, site.Look, "pod %s runs", name)
	return volumes
}

func (b *bed) setBehaviour(volumes []string, is directorydriver.Behaviour) {
	for _, v := range volumes {
		b.driver.Behave(v, is)
	}
}

// snapshotObjects returns the VolumeSnapshots of some namespaces and their VolumeSnapshotContents.
func (b *bed) snapshotObjects(t *testing.T, namespaces ...string) (found []client.Object) {
	t.Helper()
	var vs snapshotv1.VolumeSnapshotList
	var vsc snapshotv1.VolumeSnapshotContentList
	require.NoError(t, errors.Join(b.Client.List(t.Context(), &vs), b.Client.List(t.Context(), &vsc)))
	for i := range vs.Items {
		if slices.Contains(namespaces, vs.Items[i].Namespace) {
			found = append(found, &vs.Items[i])
		}
	}
	for i := range vsc.Items {
		if slices.Contains(namespaces, vsc.Items[i].Spec.VolumeSnapshotRef.Namespace) {
			found = append(found, &vsc.Items[i])
		}
	}
	return found
}

// requireClean waits until the cluster has no snapshot objects of some namespaces, and the driver this number
// of snapshots of the volumes.
func (b *bed) requireClean(t *testing.T, volumes []string, stored int, namespaces ...string) {
	t.Helper()
	clean := func() bool {
		return len(b.snapshotObjects(t, namespaces...)) == 0 && len(b.driverSnapshots(volumes)) == stored
	}
	if assert.Eventually(t, clean, site.Patience, site.Look, "no snapshot objects, and %d snapshots", stored) {
		return
	}
	left, err := json.Marshal(b.snapshotObjects(t, namespaces...))
	require.NoError(t, err)
	require.FailNow(t, "there are others", "of %v the driver has %v, and the cluster %s", volumes, b.driverSnapshots(volumes), left)
}

// driverSnapshots returns those that the driver has of the volumes.
func (b *bed) driverSnapshots(volumes []string) []directorydriver.Snapshot {
	return slices.DeleteFunc(b.driver.Snapshots(), func(s directorydriver.Snapshot) bool { return !slices.Contains(volumes, s.Volume) })
}

func (b *bed) readFile(t *testing.T, backup, suffix string) string {
	t.Helper()
	return string(b.bucket.ReadZipped(t, "backups/"+backup+"/"+backup+suffix))
}

// awaitWaiting waits until a backup waits for operations.
func (b *bed) awaitWaiting(t *testing.T, name string) *velerov1.Backup {
	t.Helper()
	backup := &velerov1.Backup{}
	require.Eventually(t, func() bool {
		err := b.Client.Get(t.Context(), client.ObjectKey{Namespace: site.Server, Name: name}, backup)
		return err == nil && strings.HasPrefix(string(backup.Status.Phase), string(velerov1.BackupPhaseWaitingForPluginOperations))
	}, site.Patience, site.Look, "backup %s waits until its snapshots are ready", name)
	return backup
}
