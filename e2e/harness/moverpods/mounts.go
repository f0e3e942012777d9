package moverpods

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
)

// messageFile is what stands for the file of the termination message.
const messageFile = "termination-log"

// look is the time between two reads of an object that is to come.
const look = 50 * time.Millisecond

// mount is a path in the container, and what it is on this machine.
type mount struct{ path, place string }

// mounts are the mounts of a container, that with the longest path first.
type mounts []mount

// replaceIn returns the arguments with each path of a mount replaced: an argument that is such a path or below it, or the value
// of a flag or variable that is.
func (m mounts) replaceIn(args []string) []string {
	out := slices.Clone(args)
	for i, arg := range out {
		flag, path := "", arg
		if name, value, ok := strings.Cut(arg, "="); ok {
			flag, path = name+"=", value
		}
		for _, mounted := range m {
			if rest, ok := strings.CutPrefix(path, mounted.path); ok && (rest == "" || rest[0] == '/') {
				out[i] = flag + mounted.place + rest
				break
			}
		}
	}
	return out
}

// mountVolumes makes what the container mounts, and finds its devices. As a kubelet it waits for Secrets and for directories that do
// not exist yet.
func (r *moverPod) mountVolumes(ctx context.Context, c *corev1.Container) (mounts, error) {
	found := mounts{{cmp.Or(c.TerminationMessagePath, corev1.TerminationMessagePathDefault), filepath.Join(r.dir, messageFile)}}
	volumes := slices.Clone(c.VolumeMounts)
	for _, device := range c.VolumeDevices {
		volumes = append(volumes, corev1.VolumeMount{Name: device.Name, MountPath: device.DevicePath})
	}
	for _, mounted := range volumes {
		i := slices.IndexFunc(r.pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == mounted.Name })
		if i < 0 {
			return nil, fmt.Errorf("mover Pod %s mounts volume %s, which it does not have", r.pod.Name, mounted.Name)
		}
		place, err := r.mountVolume(ctx, &r.pod.Spec.Volumes[i])
		if err != nil {
			return nil, fmt.Errorf("volume %s of mover Pod %s: %w", mounted.Name, r.pod.Name, err)
		}
		found = append(found, mount{filepath.Clean(mounted.MountPath), filepath.Join(place, mounted.SubPath)})
	}
	slices.SortFunc(found, func(a, b mount) int { return len(b.path) - len(a.path) })
	return found, nil
}

func (r *moverPod) mountVolume(ctx context.Context, v *corev1.Volume) (place string, err error) {
	place = filepath.Join(r.dir, "volumes", v.Name)
	switch {
	case v.HostPath != nil:
		err = r.await(ctx, func() (bool, error) {
			place, err = filepath.EvalSymlinks(v.HostPath.Path) // a link stands for a mount
			return err == nil, nil
		})
		return place, err
	case v.EmptyDir != nil, v.Projected != nil: // a token, which no mover reads
		return place, os.MkdirAll(place, 0o777)
	case v.PersistentVolumeClaim != nil:
		return r.mountClaim(ctx, v.PersistentVolumeClaim.ClaimName)
	case v.Secret != nil:
		return place, r.writeSecret(ctx, v.Secret, place)
	}
	return "", fmt.Errorf("a mover has no volume of this kind: %+v", v.VolumeSource)
}

// mountClaim waits until a claim is bound, and returns the directory or device of its volume.
func (r *moverPod) mountClaim(ctx context.Context, name string) (place string, err error) {
	err = r.await(ctx, func() (bool, error) {
		claim, err := r.movers.client.CoreV1().PersistentVolumeClaims(r.pod.Namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil || claim.Status.Phase != corev1.ClaimBound {
			return false, ignoreMissing(err)
		}
		volume, err := r.movers.client.CoreV1().PersistentVolumes().Get(ctx, claim.Spec.VolumeName, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		place, err = r.movers.directory(volume.Spec.CSI.VolumeHandle)
		return err == nil, err
	})
	return place, err
}

func ignoreMissing(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func (r *moverPod) writeSecret(ctx context.Context, source *corev1.SecretVolumeSource, place string) error {
	var secret *corev1.Secret
	err := r.await(ctx, func() (found bool, err error) {
		secret, err = r.movers.client.CoreV1().Secrets(r.pod.Namespace).Get(ctx, source.SecretName, metav1.GetOptions{})
		return err == nil, ignoreMissing(err)
	})
	if err != nil {
		return err
	}
	files := map[string]string{}
	for key := range secret.Data {
		files[key] = key
	}
	if len(source.Items) > 0 {
		clear(files)
		for _, item := range source.Items {
			files[item.Path] = item.Key
		}
	}
	for path, key := range files {
		file := filepath.Join(place, path)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, secret.Data[key], 0o400); err != nil {
			return err
		}
	}
	return nil
}

// await repeats a look until it finds something; the deletion of the Pod ends it.
func (r *moverPod) await(ctx context.Context, find func() (bool, error)) error {
	return wait.PollUntilContextCancel(ctx, look, true, func(context.Context) (bool, error) {
		select {
		case <-r.deleted:
			return false, fmt.Errorf("Pod %s was deleted", r.pod.Name)
		default:
			return find()
		}
	})
}
