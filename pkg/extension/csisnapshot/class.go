package csisnapshot

import (
	"context"
	"fmt"
	"slices"
	"strings"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"k8s.io/apimachinery/pkg/types"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// annotationDefaultClass marks the default class of its driver, with any value (Velero 1.18).
const annotationDefaultClass = "snapshot.storage.kubernetes.io/is-default-class"

// ClassError is why no VolumeSnapshotClass can be chosen for a claim.
type ClassError struct {
	Claim  types.NamespacedName
	Driver string
	// Reason is what is wrong; empty where no class is for the driver.
	Reason string
	// Classes are all classes there are, as "name (driver)".
	Classes []string
}

// Error implements error.
func (e *ClassError) Error() string {
	reason := e.Reason
	if reason == "" {
		reason = fmt.Sprintf("no VolumeSnapshotClass is for driver %q", e.Driver)
	}
	if len(e.Classes) == 0 {
		return fmt.Sprintf("claim %s: %s; there are no VolumeSnapshotClasses", e.Claim, reason)
	}
	return fmt.Sprintf("claim %s: %s; VolumeSnapshotClasses: %s", e.Claim, reason, strings.Join(e.Classes, ", "))
}

// Unserved reports that no class is for the driver, and none is asked for.
func (e *ClassError) Unserved() bool { return e.Reason == "" }

// maxClasses bounds the classes that an error names.
const maxClasses = 20

// classWish is a class that an annotation names.
type classWish struct{ where, class string }

// chooseClass returns the class for a claim: the one that an annotation of the claim or of the backup
// names, the one that is labelled for backups, the default of the driver, or the only one. Unlike
// in Velero 1.18 an annotation that names no class of the driver is an error, and the driver is the
// volume's and not the provisioner of its StorageClass. Where several are labelled, the others follow the
// class. An error is a *ClassError.
func chooseClass(classes []snapshotv1.VolumeSnapshotClass, driver string, claim *claim, backup *velerov1.Backup) ([]string, error) {
	failed := &ClassError{Claim: types.NamespacedName{Namespace: claim.Metadata.Namespace, Name: claim.Metadata.Name}, Driver: driver}
	slices.SortFunc(classes, func(a, b snapshotv1.VolumeSnapshotClass) int { return strings.Compare(a.Name, b.Name) })
	var mine []*snapshotv1.VolumeSnapshotClass
	for i := range classes {
		if len(failed.Classes) < maxClasses {
			failed.Classes = append(failed.Classes, fmt.Sprintf("%s (%s)", classes[i].Name, classes[i].Driver))
		}
		if classes[i].Driver == driver {
			mine = append(mine, &classes[i])
		}
	}
	if all := classWishes(claim, backup, driver); len(all) > 0 {
		w := all[0]
		for _, c := range mine {
			if strings.EqualFold(c.Name, w.class) {
				return []string{c.Name}, nil
			}
		}
		failed.Reason = fmt.Sprintf("%s names %q, which is no VolumeSnapshotClass for driver %q", w.where, w.class, driver)
		return nil, failed
	}
	var labelled []string
	for _, c := range mine {
		if _, ok := c.Labels[velerov1.LabelCSIVolumeSnapshotClass]; ok {
			labelled = append(labelled, c.Name)
		}
	}
	if len(labelled) > 0 {
		return labelled, nil
	}
	for _, c := range mine {
		if _, ok := c.Annotations[annotationDefaultClass]; ok {
			return []string{c.Name}, nil
		}
	}
	switch len(mine) {
	case 0:
		return nil, failed
	case 1:
		return []string{mine[0].Name}, nil
	}
	failed.Reason = fmt.Sprintf("several VolumeSnapshotClasses are for driver %q, and none has the label %s or the annotation %s",
		driver, velerov1.LabelCSIVolumeSnapshotClass, annotationDefaultClass)
	return nil, failed
}

// classWishes returns what annotations ask for, the one that counts first.
func classWishes(claim *claim, backup *velerov1.Backup, driver string) (all []classWish) {
	if class := claim.Metadata.Annotations[velerov1.AnnotationCSISnapshotClass]; class != "" {
		all = append(all, classWish{"annotation " + velerov1.AnnotationCSISnapshotClass + " of the claim", class})
	}
	key := velerov1.AnnotationCSISnapshotClassPrefix + strings.ToLower(driver)
	if class := backup.Annotations[key]; class != "" {
		all = append(all, classWish{"annotation " + key + " of the backup", class})
	}
	return all
}

// classForClaim chooses the class for a claim.
func (s *Snapshotter) classForClaim(ctx context.Context, c *claim, driver string) (string, error) {
	var list snapshotv1.VolumeSnapshotClassList
	if err := s.retryCall(ctx, "list VolumeSnapshotClasses", func() error { return s.Reader.List(ctx, &list) }); err != nil {
		return "", err
	}
	all, err := chooseClass(list.Items, driver, c, s.Backup)
	if err != nil {
		return "", err
	}
	if len(all) > 1 {
		s.warnSeveral(all, driver)
	}
	return all[0], nil
}

// warnSeveral reports, once for each driver, that several of its classes are labelled for backups.
func (s *Snapshotter) warnSeveral(names []string, driver string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.several[driver] || s.Warn == nil {
		return
	}
	if s.several == nil {
		s.several = map[string]bool{}
	}
	s.several[driver] = true
	s.Warn(fmt.Sprintf("VolumeSnapshotClasses %s of driver %q all have the label %s: %q is used; remove the label from the others, or name one in the annotation %s of the backup",
		strings.Join(names[:min(len(names), maxClasses)], ", "), driver, velerov1.LabelCSIVolumeSnapshotClass, names[0], velerov1.AnnotationCSISnapshotClassPrefix+strings.ToLower(driver)))
}
