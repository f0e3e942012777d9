package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

// provisionerName is the provisioner of the default StorageClass.
const provisionerName = "holdfast.test/directories"

// look is the interval at which states are looked at.
const look = 100 * time.Millisecond

// provisionedBy is the annotation by which the volume controllers know who made a volume and who
// deletes it.
const provisionedBy = "pv.kubernetes.io/provisioned-by"

// volumeProvisioner makes local volumes of directories for the claims of the default StorageClass, and
// removes those that are released.
type volumeProvisioner struct {
	client kubernetes.Interface
	root   string
}

// createClass creates the StorageClass.
func (v *volumeProvisioner) createClass(ctx context.Context) error {
	_, err := v.client.StorageV1().StorageClasses().Create(ctx, &storagev1.StorageClass{
		ObjectMeta:  metav1.ObjectMeta{Name: StorageClass, Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}},
		Provisioner: provisionerName, ReclaimPolicy: ptr.To(corev1.PersistentVolumeReclaimDelete),
	}, metav1.CreateOptions{})
	return err
}

// runProvisioner works until ctx ends.
func (v *volumeProvisioner) runProvisioner(ctx context.Context) {
	for ticker := time.NewTicker(5 * look); ; {
		if err := errors.Join(v.provisionClaims(ctx), v.removeVolumes(ctx)); err != nil && ctx.Err() == nil {
			slog.WarnContext(ctx, "volumes are not as they should be", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (v *volumeProvisioner) provisionClaims(ctx context.Context) error {
	claims, err := v.client.CoreV1().PersistentVolumeClaims("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	var errs error
	for i := range claims.Items {
		c := &claims.Items[i]
		if c.Status.Phase == corev1.ClaimPending && c.Spec.VolumeName == "" && ptr.Deref(c.Spec.StorageClassName, "") == StorageClass && c.Spec.DataSource == nil {
			errs = errors.Join(errs, v.makeVolume(ctx, c))
		}
	}
	return errs
}

// makeVolume makes the volume of a claim; kubelet gives its directory to the fsGroup of Pods.
func (v *volumeProvisioner) makeVolume(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	name := "pvc-" + string(claim.UID)
	path := filepath.Join(v.root, name)
	if err := os.MkdirAll(path, 0o750); err != nil {
		return err
	}
	_, err := v.client.CoreV1().PersistentVolumes().Create(ctx, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{provisionedBy: provisionerName}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: claim.Spec.Resources.Requests, AccessModes: claim.Spec.AccessModes, StorageClassName: StorageClass,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			PersistentVolumeSource:        corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: path}},
			ClaimRef:                      &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{Name}}},
			}}}},
		},
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("make the volume of %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	return nil
}

func (v *volumeProvisioner) removeVolumes(ctx context.Context) error {
	volumes, err := v.client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	var errs error
	for i := range volumes.Items {
		pv := &volumes.Items[i]
		if pv.Annotations[provisionedBy] != provisionerName || pv.Status.Phase != corev1.VolumeReleased ||
			pv.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete {
			continue
		}
		err := os.RemoveAll(filepath.Join(v.root, pv.Name))
		if err == nil {
			err = v.client.CoreV1().PersistentVolumes().Delete(ctx, pv.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pv.UID}})
		}
		if err != nil && !apierrors.IsNotFound(err) {
			errs = errors.Join(errs, fmt.Errorf("remove volume %s: %w", pv.Name, err))
		}
	}
	return errs
}
