package volumes

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
)

const (
	noProvisioner = "kubernetes.io/no-provisioner"
	// classAnnotation names the class of claims and volumes that are older than the field; it comes before the field.
	classAnnotation = corev1.BetaStorageClassAnnotation
)

// isDefault reports what makes a class the default one, in its present and its former spelling:
// https://kubernetes.io/docs/concepts/storage/storage-classes/#default-storageclass
func isDefault(c *storagev1.StorageClass) bool {
	return c.Annotations["storageclass.kubernetes.io/is-default-class"] == "true" || c.Annotations["storageclass.beta.kubernetes.io/is-default-class"] == "true"
}

// storageClasses are the StorageClasses of the cluster, read once, and the volumes that are free where
// nothing provisions one. Safe for concurrent use.
type storageClasses struct {
	mu    sync.Mutex
	read  bool
	waits map[string]bool // class -> whether its claims need a volume that is there
	none  bool            // no class is the default one
	free  map[string]int  // class -> volumes that no claim has; nil before they are read
	kept  map[string]bool // claims that a volume is bound to, or reserved for
}

// findProblem returns why a claim of a class, or of none, gets no volume; "" where it gets one.
func (s *storageClasses) findProblem(ctx context.Context, client *apply.Client, claim apply.Target, class string, named bool) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.readClasses(ctx, client); err != nil {
		return "", err
	}
	waits, known := s.waits[class]
	if class == "" {
		waits, known = named || s.none, true
	}
	if known && !waits {
		return "", nil
	}
	if err := s.countFree(ctx, client); err != nil {
		return "", err
	}
	switch {
	case s.kept[claim.Namespace+"/"+claim.Name]:
		return "", nil
	case s.free[class] > 0:
		s.free[class]--
		return "", nil
	case class == "" && !named:
		return "it names no StorageClass, the cluster has no default one, and no volume without a class is free", nil
	case class == "":
		return "no volume is provisioned for it, since its StorageClass is \"\", and no volume without a class is free", nil
	case known:
		return fmt.Sprintf("StorageClass %q provisions no volumes, and no volume of it is free", class), nil
	}
	return fmt.Sprintf("StorageClass %q is not in the cluster, and no volume of it is free; a ConfigMap of the action change-storage-class maps classes", class), nil
}

func (s *storageClasses) readClasses(ctx context.Context, client *apply.Client) error {
	if s.read {
		return nil
	}
	s.waits, s.none = map[string]bool{}, true
	err := apply.EachObject(ctx, client, apply.Target{GVR: classesGVR}, func(c *storagev1.StorageClass) {
		s.waits[c.Name] = c.Provisioner == noProvisioner // a first consumer brings no volume either
		s.none = s.none && !isDefault(c)
	})
	s.read = err == nil
	return err
}

func (s *storageClasses) countFree(ctx context.Context, client *apply.Client) error {
	if s.free != nil {
		return nil
	}
	free := map[string]int{}
	s.kept = map[string]bool{}
	err := apply.EachObject(ctx, client, apply.Target{GVR: volumesGVR}, func(v *corev1.PersistentVolume) {
		switch ref := v.Spec.ClaimRef; {
		case v.DeletionTimestamp != nil, v.Status.Phase == corev1.VolumeFailed, v.Status.Phase == corev1.VolumeReleased:
		case ref == nil:
			class, named := v.Annotations[classAnnotation]
			if !named {
				class = v.Spec.StorageClassName
			}
			free[class]++
		default:
			s.kept[ref.Namespace+"/"+ref.Name] = true
		}
	})
	if err == nil {
		s.free = free
	}
	return err
}
