package moverpod

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// RefusalError is why a volume or location is not for a mover Pod. It lasts.
type RefusalError struct{ Reason string }

// Error implements error.
func (e *RefusalError) Error() string { return e.Reason }

func newRefusal(format string, args ...any) error {
	return &RefusalError{Reason: fmt.Sprintf(format, args...)}
}

// Volume is a volume of a Pod.
type Volume struct {
	// Directory is where the kubelet has it on the Pod's node.
	Directory string
	// Claim is its PersistentVolumeClaim; nil if it has none.
	Claim *corev1.PersistentVolumeClaim
}

// FindVolume finds a volume of a Pod below the kubelet's directory. Volumes that are no directory of their
// own on the node are refused.
func FindVolume(ctx context.Context, r client.Reader, kubeletRoot string, pod *corev1.Pod, name string) (Volume, error) {
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; v.Name == name {
			found, sub, err := findDirectory(ctx, r, pod, v)
			found.Directory = filepath.Join(kubeletRoot, "pods", string(pod.UID), "volumes", sub)
			return found, err
		}
	}
	return Volume{}, newRefusal("Pod %s/%s has no volume %q", pod.Namespace, pod.Name, name)
}

// findDirectory returns the claim of a volume, and its directory below that of all volumes of the Pod.
func findDirectory(ctx context.Context, r client.Reader, pod *corev1.Pod, v *corev1.Volume) (Volume, string, error) {
	switch s := v.VolumeSource; {
	case s.PersistentVolumeClaim != nil:
		return findClaim(ctx, r, pod, s.PersistentVolumeClaim.ClaimName)
	case s.Ephemeral != nil:
		return findClaim(ctx, r, pod, pod.Name+"-"+v.Name)
	case s.EmptyDir != nil:
		return Volume{}, joinPath("kubernetes.io/empty-dir", v.Name), nil
	case s.CSI != nil:
		return Volume{}, filepath.Join(joinPath(pluginCSI, v.Name), "mount"), nil
	case s.NFS != nil:
		return Volume{}, joinPath("kubernetes.io/nfs", v.Name), nil
	case s.ISCSI != nil:
		return Volume{}, joinPath("kubernetes.io/iscsi", v.Name), nil
	case s.FC != nil:
		return Volume{}, joinPath("kubernetes.io/fc", v.Name), nil
	case s.FlexVolume != nil:
		return Volume{}, joinPath(s.FlexVolume.Driver, v.Name), nil
	}
	return Volume{}, "", newRefusal("volume %q of Pod %s/%s is of a type that file-system backup cannot read", v.Name, pod.Namespace, pod.Name)
}

func findClaim(ctx context.Context, r client.Reader, pod *corev1.Pod, name string) (Volume, string, error) {
	claim := &corev1.PersistentVolumeClaim{}
	if err := r.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: name}, claim); err != nil {
		return Volume{}, "", fmt.Errorf("claim %s/%s: %w", pod.Namespace, name, err)
	}
	found := Volume{Claim: claim}
	switch {
	case ptr.Deref(claim.Spec.VolumeMode, corev1.PersistentVolumeFilesystem) == corev1.PersistentVolumeBlock:
		return found, "", newRefusal("claim %s/%s is a block volume, which file-system backup cannot read; use snapshots", pod.Namespace, name)
	case claim.Spec.VolumeName == "":
		return found, "", newRefusal("claim %s/%s is not bound", pod.Namespace, name)
	}
	volume := &corev1.PersistentVolume{}
	if err := r.Get(ctx, client.ObjectKey{Name: claim.Spec.VolumeName}, volume); err != nil {
		return found, "", fmt.Errorf("PersistentVolume %s of claim %s/%s: %w", claim.Spec.VolumeName, pod.Namespace, name, err)
	}
	sub, err := volumePath(volume)
	return found, sub, err
}

// pluginCSI is the directory of CSI volumes, and of those in-tree volumes that kubelets mount by CSI drivers.
const pluginCSI = "kubernetes.io/csi"

func volumePath(v *corev1.PersistentVolume) (string, error) {
	switch s := v.Spec.PersistentVolumeSource; {
	case s.CSI != nil, s.AWSElasticBlockStore != nil, s.GCEPersistentDisk != nil, s.AzureDisk != nil, s.AzureFile != nil,
		s.Cinder != nil, s.VsphereVolume != nil, s.PortworxVolume != nil:
		return filepath.Join(joinPath(pluginCSI, v.Name), "mount"), nil
	case s.Local != nil:
		return joinPath("kubernetes.io/local-volume", v.Name), nil
	case s.NFS != nil:
		return joinPath("kubernetes.io/nfs", v.Name), nil
	case s.ISCSI != nil:
		return joinPath("kubernetes.io/iscsi", v.Name), nil
	case s.FC != nil:
		return joinPath("kubernetes.io/fc", v.Name), nil
	case s.FlexVolume != nil:
		return joinPath(s.FlexVolume.Driver, v.Name), nil
	case s.HostPath != nil:
		return "", newRefusal("PersistentVolume %s is a directory of the node (hostPath), which has no directory below the kubelet's", v.Name)
	}
	return "", newRefusal("PersistentVolume %s is of a type that file-system backup cannot read", v.Name)
}

// joinPath is the directory of a volume: a kubelet escapes the slashes of the plugin's name.
func joinPath(plugin, name string) string {
	return filepath.Join(strings.ReplaceAll(plugin, "/", "~"), name)
}
