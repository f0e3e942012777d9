package podvolume

import (
	"context"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/kubelet"
	"github.com/holdfast-io/holdfast/e2e/harness/moverpods"
	"github.com/holdfast-io/holdfast/e2e/harness/site"
	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
	"github.com/holdfast-io/holdfast/e2e/harness/volumefiles"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
)

// class is the class of storage of all claims, whose volumes the test makes.
const class = "made-by-hand"

// bed is a site with a node that has Pods, their volumes and movers.
type bed struct {
	*site.Site
	s3     *testbed.S3
	bucket *site.Bucket
	node   *kubelet.Node
	movers *moverpods.Movers
	apps   *applications
}

func newBed(t *testing.T) *bed {
	t.Helper()
	s3 := testbed.StartS3T(t)
	return startBed(t, s3, site.S3Bucket(t, s3, "default"))
}

// startBed starts a site that uses a bucket. Flags are further ones of backup-runner and volume-mover.
func startBed(t *testing.T, s3 *testbed.S3, bucket *site.Bucket, flags ...string) *bed {
	t.Helper()
	b := &bed{apps: &applications{}, s3: s3, bucket: bucket}
	b.Site = site.Start(t, site.Config{
		Arrange: func(s *site.Site) map[string][]string {
			var err error
			b.node, err = kubelet.Start(t.Context(), s.Cluster.RestConfig(), "node", &kubetest.ExecHandler{Run: b.runCommand})
			require.NoError(t, err)
			t.Cleanup(b.node.Close)
			b.movers = moverpods.Start(t, s.Cluster.RestConfig(), site.Server, b.node, nil)
			return map[string][]string{"volume-mover": {"--kubelet-root=" + b.movers.Root()}}
		},
		Args: map[string][]string{
			"backup-runner": append([]string{"--claim-timeout=2s"}, flags...), "restore-runner": {"--claim-timeout=2s", "--resource-timeout=1m", "--restore-wait-image=none"},
			"queue-scheduler": {"--claim-timeout=2s"}, "async-operation-monitor": {"--item-operation-sync-frequency=1s"},
			"manifest-indexer": {"--backup-sync-period=1s"},
			"volume-mover":     append([]string{"--mover-image=none", "--duty-timeout=2s"}, flags...),
		},
	})
	b.ReachS3(t, b.s3, b.bucket)
	require.NoError(t, b.Client.Create(t.Context(), &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: class}, Provisioner: "kubernetes.io/no-provisioner", VolumeBindingMode: new(storagev1.VolumeBindingImmediate),
	}))
	return b
}

// createVolumes makes volumes for the next claims.
func (b *bed) createVolumes(t *testing.T, count int) {
	t.Helper()
	for range count {
		require.NoError(t, b.Client.Create(t.Context(), &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "volume-"},
			Spec: corev1.PersistentVolumeSpec{
				StorageClassName: class, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, Capacity: oneGiB(),
				PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "none.example.com", VolumeHandle: "v"}},
			},
		}))
	}
}

func oneGiB() corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: apiresource.MustParse("1Gi")}
}

// newPod returns Pod db with a claim, an emptyDir and a ConfigMap.
func newPod(namespace string, annotations map[string]string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "db", Annotations: annotations},
		Spec: corev1.PodSpec{
			Volumes: []corev1.Volume{
				{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}},
				{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
				{Name: "settings", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
					LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}}},
			},
			Containers: []corev1.Container{{Name: "main", Image: "none", VolumeMounts: []corev1.VolumeMount{
				{Name: "data", MountPath: "/data"}, {Name: "scratch", MountPath: "/scratch"}, {Name: "settings", MountPath: "/settings"},
			}}},
		},
	}
}

// createApplication makes Pod db in a namespace of its own, which runs with files in its volumes, and returns
// their directories.
func (b *bed) createApplication(t *testing.T, namespace string, annotations map[string]string) (dirs map[string]string) {
	t.Helper()
	b.Namespace(t, namespace)
	b.createVolumes(t, 1)
	require.NoError(t, b.Client.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "settings"}}))
	require.NoError(t, b.Client.Create(t.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "data"},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: new(class), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: oneGiB()},
		},
	}))
	require.Eventually(t, func() bool { return b.node.Run(t.Context(), newPod(namespace, annotations)) == nil }, site.Patience, site.Look, "the Pod runs")
	b.awaitBound(t, namespace)
	pod := &corev1.Pod{}
	require.NoError(t, b.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "db"}, pod))
	dirs, err := b.movers.MountVolumes(t.Context(), pod)
	require.NoError(t, err)
	volumefiles.Write(t, dirs["data"], namespace)
	volumefiles.Write(t, dirs["scratch"], "scratch of "+namespace)
	return dirs
}

func (b *bed) awaitBound(t *testing.T, namespace string) {
	t.Helper()
	claim := &corev1.PersistentVolumeClaim{}
	require.Eventually(t, func() bool {
		return b.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "data"}, claim) == nil && claim.Status.Phase == corev1.ClaimBound
	}, site.Patience, site.Look, "the claim of %s is bound", namespace)
}

// destroy deletes a namespace, whose Pods no node ends.
func (b *bed) destroy(t *testing.T, namespace string) {
	t.Helper()
	require.NoError(t, b.Client.Delete(t.Context(), newPod(namespace, nil), client.GracePeriodSeconds(0)))
	// The claim goes before the namespace, whose controller looks again after seconds at what it finds left.
	for _, o := range []client.Object{
		&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "data"}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
	} {
		require.NoError(t, b.Client.Delete(t.Context(), o))
		gone := func() bool { return apierrors.IsNotFound(b.Client.Get(t.Context(), client.ObjectKeyFromObject(o), o)) }
		require.Eventually(t, gone, site.Patience, site.Look, "%T of %s is gone", o, namespace)
	}
}

// createBackup requests a backup of a namespace of its name, of all volumes.
func (b *bed) createBackup(t *testing.T, name string, change ...func(*velerov1.BackupSpec)) {
	t.Helper()
	backup := &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: site.Server, Name: name},
		Spec: velerov1.BackupSpec{IncludedNamespaces: []string{name}, DefaultVolumesToFsBackup: new(true)}}
	for _, f := range change {
		f(&backup.Spec)
	}
	require.NoError(t, b.Client.Create(t.Context(), backup))
}

// requests returns the PodVolumeBackups of a backup, by volume.
func (b *bed) requests(t *testing.T, backup string) map[string]velerov1.PodVolumeBackup {
	t.Helper()
	list, found := &velerov1.PodVolumeBackupList{}, map[string]velerov1.PodVolumeBackup{}
	require.NoError(t, b.Client.List(t.Context(), list, client.InNamespace(site.Server), client.MatchingLabels{velerov1.LabelBackupName: backup}))
	for _, p := range list.Items {
		require.NotContains(t, found, p.Spec.Volume, "one request for each volume")
		found[p.Spec.Volume] = p
	}
	return found
}

// requireNoMovers waits until no mover Pod and no Secret of one is left.
func (b *bed) requireNoMovers(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		pods, secrets := &corev1.PodList{}, &corev1.SecretList{}
		require.NoError(t, b.Client.List(t.Context(), pods, client.InNamespace(site.Server), client.HasLabels{moverpods.Label}))
		require.NoError(t, b.Client.List(t.Context(), secrets, client.InNamespace(site.Server), client.HasLabels{moverpods.Label}))
		return len(pods.Items)+len(secrets.Items) == 0
	}, site.Patience, site.Look, "no mover Pod is left")
}

// applications run commands in Pods, and note the order.
type applications struct {
	mu  sync.Mutex
	ran []string
}

// runCommand runs a command in a mover Pod, or notes that of a hook.
func (b *bed) runCommand(ctx context.Context, r *kubetest.ExecRequest, stdout, stderr io.Writer) error {
	if b.movers.IsMover(r) {
		return b.movers.RunCommand(ctx, r, stdout, stderr)
	}
	b.apps.mu.Lock()
	defer b.apps.mu.Unlock()
	b.apps.ran = append(b.apps.ran, r.Namespace+" "+r.Command[0])
	return nil
}

// commandsIn returns the commands that ran in a namespace.
func (a *applications) commandsIn(namespace string) (ran []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, line := range slices.Clone(a.ran) {
		if command, ok := strings.CutPrefix(line, namespace+" "); ok {
			ran = append(ran, command)
		}
	}
	return ran
}
