//go:build node

package install

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/node"
	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// vault is the namespace of Pods whose volumes something happens to.
const vault = "vault"

// Pods of the vault, and their volumes by the names of their claims.
const (
	archive, photos = "archive", "photos" // 240 MiB
	mirror, films   = "mirror", "films"   // 240 MiB
	first, second   = "first", "second"   // have one claim
	common, scratch = "common", "scratch" // the claim, and an emptyDir
	cramped, memory = "cramped", "memory" // larger with every hard link as a file of its own than the volume
	unscheduled     = "unscheduled"       // no node takes it
)

const (
	// fillLarge fills a volume with files that a test removes, and with others.
	fillLarge = `for i in 0 1 2 3 4 5; do dd if=/dev/urandom of=gone-$i bs=1M count=20; done; for i in 0 1 2 3; do dd if=/dev/urandom of=keep-$i bs=1M count=30; done`
	// fillMemory leaves no room for a second copy of the file in the 16 MiB of the volume.
	fillMemory = `dd if=/dev/urandom of=one bs=1M count=6; ln one two; ln one three`
	fillCommon = `echo note > note`
)

// createVault creates the Pods with their claims, and waits until their volumes are filled.
func (b *bed) createVault(t *testing.T) {
	t.Helper()
	b.createNamespace(t, vault)
	for _, name := range []string{photos, films, common} {
		require.NoError(t, b.client.Create(t.Context(), &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: vault, Name: name},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: apiresource.MustParse("256Mi")}},
			},
		}))
	}
	small := corev1.Volume{Name: memory, VolumeSource: corev1.VolumeSource{
		EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory, SizeLimit: ptr.To(apiresource.MustParse("16Mi"))},
	}}
	empty := corev1.Volume{Name: scratch, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}
	choosy := vaultPod(first, fillCommon, claimVolume(common), empty)
	choosy.Annotations = map[string]string{velerov1.AnnotationBackupVolumesExcludes: scratch}
	nowhere := vaultPod(unscheduled, "true", empty)
	nowhere.Spec.NodeSelector = map[string]string{"no": "node"}
	running := []*corev1.Pod{
		vaultPod(archive, fillLarge, claimVolume(photos)), vaultPod(mirror, fillLarge, claimVolume(films)), vaultPod(cramped, fillMemory, small),
		choosy, vaultPod(second, "true", claimVolume(common)),
	}
	for _, pod := range append(running, nowhere) {
		require.NoError(t, b.client.Create(t.Context(), pod))
	}
	for _, pod := range running {
		b.awaitFilled(t, pod.Name)
	}
}

func claimVolume(name string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}}
}

// vaultPod returns a Pod that fills the first of its volumes with a script, unless that holds files, as a restored one does.
func vaultPod(name, fill string, volumes ...corev1.Volume) *corev1.Pod {
	c := corev1.Container{
		Name: name, Image: node.TestImage, ImagePullPolicy: corev1.PullNever,
		Command: []string{"sh", "-c", fmt.Sprintf(`cd /volumes/%s; [ "$(ls)" ] || { %s; }; touch /tmp/filled; exec sleep 1000000`, volumes[0].Name, fill)},
	}
	for i := range volumes {
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: volumes[i].Name, MountPath: "/volumes/" + volumes[i].Name})
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: vault, Name: name},
		Spec:       corev1.PodSpec{TerminationGracePeriodSeconds: ptr.To[int64](0), Containers: []corev1.Container{c}, Volumes: volumes},
	}
}

// awaitFilled waits until a Pod of the vault runs with its files.
func (b *bed) awaitFilled(t *testing.T, pod string) {
	t.Helper()
	require.Eventually(t, func() bool { return b.tryInPod(t, vault, pod, "test -e /tmp/filled") == nil }, patience, look, "Pod %s runs", pod)
}

// requireWaiting checks that a restored Pod waits for its data.
func (b *bed) requireWaiting(t *testing.T, name string) {
	t.Helper()
	pod := &corev1.Pod{}
	require.NoError(t, b.client.Get(t.Context(), client.ObjectKey{Namespace: vault, Name: name}, pod))
	require.Equal(t, corev1.PodPending, pod.Status.Phase, name)
	require.Len(t, pod.Status.InitContainerStatuses, 1, name)
	require.NotNil(t, pod.Status.InitContainerStatuses[0].State.Running, name)
}

// deleteVaultPod deletes a Pod of the vault with its claims, and waits until they are gone.
func (b *bed) deleteVaultPod(t *testing.T, pod string, claims ...string) {
	t.Helper()
	objects := []client.Object{&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: vault, Name: pod}}}
	for _, claim := range claims {
		objects = append(objects, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: vault, Name: claim}})
	}
	for _, object := range objects {
		require.NoError(t, b.client.Delete(t.Context(), object, client.GracePeriodSeconds(0)))
	}
	for _, object := range objects {
		require.Eventually(t, func() bool {
			return apierrors.IsNotFound(b.client.Get(t.Context(), client.ObjectKeyFromObject(object), object))
		}, patience, look, "%s is gone", object.GetName())
	}
}

// runInPod runs a command of the shell in the only container of a Pod.
func (b *bed) runInPod(t *testing.T, namespace, pod, command string) string {
	t.Helper()
	return b.runTool(t, "kubectl", "--namespace", namespace, "exec", pod, "--", "sh", "-c", command)
}

// tryInPod is runInPod for a command that may fail.
func (b *bed) tryInPod(t *testing.T, namespace, pod, command string) error {
	t.Helper()
	kubectl, err := testbed.Binary("kubectl")
	require.NoError(t, err)
	_, err = b.tryProgram(t.Context(), kubectl, "--namespace", namespace, "exec", pod, "--", "sh", "-c", command)
	return err
}
