package datamovement

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/csistorage"
	"github.com/holdfast-io/holdfast/e2e/harness/kubelet"
	"github.com/holdfast-io/holdfast/e2e/harness/moverpods"
	"github.com/holdfast-io/holdfast/e2e/harness/site"
	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
	"github.com/holdfast-io/holdfast/e2e/harness/volumefiles"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/apis/velero/v2alpha1"
	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
)

// Phases in which requests end.
const (
	completed = v2alpha1.DataMovePhase(velerov1.PodVolumePhaseCompleted)
	canceled  = v2alpha1.DataMovePhase(velerov1.PodVolumePhaseCanceled)
)

// bed is a site whose cluster has CSI volumes and snapshots, and a node that runs movers.
type bed struct {
	*site.Site
	storage *csistorage.Storage
	node    *kubelet.Node
	movers  *moverpods.Movers
	bucket  *site.Bucket
	// describe maps each entry of a volume to what is compared of it.
	describe func(t *testing.T, dir string) map[string]string
}

const feature = "--features=EnableCSI"

func newBed(t *testing.T) *bed {
	t.Helper()
	s3 := testbed.StartS3T(t)
	return startBed(t, s3, site.S3Bucket(t, s3, "default"))
}

// startBed starts a site that uses a bucket. Flags are further ones of backup-runner and volume-mover.
func startBed(t *testing.T, s3 *testbed.S3, bucket *site.Bucket, flags ...string) *bed {
	t.Helper()
	b := &bed{bucket: bucket, describe: volumefiles.Describe}
	b.Site = site.Start(t, site.Config{
		Identities: []string{"--set", "features={EnableCSI}"},
		Arrange: func(s *site.Site) map[string][]string {
			b.storage = csistorage.Start(t, s.Cluster, s.Client)
			var err error
			b.node, err = kubelet.Start(t.Context(), s.Cluster.RestConfig(), "node", &kubetest.ExecHandler{})
			require.NoError(t, err)
			t.Cleanup(b.node.Close)
			b.movers = moverpods.Start(t, s.Cluster.RestConfig(), site.Server, b.node, b.storage.Driver.AttachVolume)
			return map[string][]string{"volume-mover": {"--kubelet-root=" + b.movers.Root()}}
		},
		Args: map[string][]string{
			"backup-runner":           append([]string{feature, "--claim-timeout=2s"}, flags...),
			"async-operation-monitor": {feature, "--item-operation-sync-frequency=1s", "--item-operation-cancel-grace-period=10s"},
			"queue-scheduler":         {feature, "--claim-timeout=2s"},
			"deletion":                {feature, "--claim-timeout=2s"},
			"restore-runner":          {feature, "--claim-timeout=2s", "--resource-timeout=1m", "--restore-wait-image=none"},
			"manifest-indexer":        {"--backup-sync-period=1s"},
			"volume-mover":            append([]string{"--mover-image=none", "--duty-timeout=2s"}, flags...),
		},
	})
	b.ReachS3(t, s3, b.bucket)
	return b
}

// createClaims makes a namespace whose claims have files, and returns what is in the volume of each. Volumes of a claim with the name
// of a class are of that class, and that of a claim disk is a block device, which takes root.
func (b *bed) createClaims(t *testing.T, namespace string, claims ...string) map[string]map[string]string {
	t.Helper()
	b.Namespace(t, namespace)
	files := map[string]map[string]string{}
	for _, name := range claims {
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: csistorage.Spec()}
		if name == csistorage.Late {
			claim.Spec.StorageClassName = new(csistorage.Late)
			claim.Annotations = map[string]string{annotationNode: "node"}
		}
		if name == disk {
			claim.Spec.VolumeMode = new(corev1.PersistentVolumeBlock)
			claim.Spec.Resources.Requests[corev1.ResourceStorage] = apiresource.MustParse("24Mi")
		}
		require.NoError(t, b.Client.Create(t.Context(), claim))
	}
	for _, name := range claims {
		dir := b.directory(t, namespace, name)
		if name == disk {
			volumefiles.WriteDevice(t, dir, namespace)
		} else {
			volumefiles.Write(t, dir, namespace+" "+name)
		}
		files[name] = b.describe(t, dir)
	}
	return files
}

// disk is the name of claims of block volumes.
const disk = "disk"

// annotationNode names the node of the first consumer of a claim, as the scheduler writes it.
const annotationNode = "volume.kubernetes.io/selected-node"

// addConsumer lets a claim have its first consumer, once it is there.
func (b *bed) addConsumer(t *testing.T, namespace, name string) {
	t.Helper()
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"node"}}}`, annotationNode))
	require.Eventually(t, func() bool { return b.Client.Patch(t.Context(), claim, patch) == nil }, site.Patience, site.Look, "claim %s/%s is there", namespace, name)
}

// directory waits until a claim is bound, and returns the directory or device of its volume.
func (b *bed) directory(t *testing.T, namespace, name string) string {
	t.Helper()
	dir, err := b.storage.Driver.AttachVolume(b.storage.Volume(t, namespace, name))
	require.NoError(t, err)
	return dir
}

// createBackup requests a backup of a namespace, whose data is to be moved.
func (b *bed) createBackup(t *testing.T, name, namespace string) {
	t.Helper()
	require.NoError(t, b.Client.Create(t.Context(), &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: site.Server, Name: name}, Spec: velerov1.BackupSpec{
		StorageLocation: b.bucket.Location, IncludedNamespaces: []string{namespace}, SnapshotMoveData: new(true)}}))
}

// uploads returns the DataUploads of a backup, by claim.
func (b *bed) uploads(t *testing.T, backup string) map[string]v2alpha1.DataUpload {
	t.Helper()
	list, found := &v2alpha1.DataUploadList{}, map[string]v2alpha1.DataUpload{}
	require.NoError(t, b.Client.List(t.Context(), list, client.InNamespace(site.Server), client.MatchingLabels{velerov1.LabelBackupName: backup}))
	for _, u := range list.Items {
		require.NotContains(t, found, u.Spec.SourcePVC, "one request for each claim")
		found[u.Spec.SourcePVC] = u
	}
	return found
}

// downloads returns the DataDownloads of a restore, by claim.
func (b *bed) downloads(t *testing.T, restore string) map[string]v2alpha1.DataDownload {
	t.Helper()
	list, found := &v2alpha1.DataDownloadList{}, map[string]v2alpha1.DataDownload{}
	require.NoError(t, b.Client.List(t.Context(), list, client.InNamespace(site.Server), client.MatchingLabels{velerov1.LabelRestoreName: restore}))
	for _, d := range list.Items {
		require.NotContains(t, found, d.Spec.TargetVolume.PVC, "one request for each claim")
		found[d.Spec.TargetVolume.PVC] = d
	}
	return found
}

// requireNothingLeft waits until nothing is left that was made to move data.
func (b *bed) requireNothingLeft(t *testing.T) {
	t.Helper()
	b.storage.RequireNothingLeft(t, site.Server)
}
