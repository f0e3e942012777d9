package locations

import (
	"context"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/objectstore/location"
)

const (
	// unsetDefault is the value of the flag that nobody chose.
	unsetDefault = "default"
	// toolResetWindow is within which time a location that is made the default again, after another one was, is
	// set back by a tool and not by a person.
	toolResetWindow = 10 * time.Minute
)

// ensureDefault keeps one default, and notes on it that it was accepted. Where none is the default, none is
// made so. The given locations are brought up to date.
func (v *Validator) ensureDefault(ctx context.Context, locs []velerov1.BackupStorageLocation) error {
	chosen := v.chooseDefault(locs)
	if chosen == nil {
		return nil
	}
	if accepted, err := v.acceptDefault(ctx, chosen); err != nil || !accepted {
		return err
	}
	for i := range locs {
		if locs[i].UID == chosen.UID {
			continue
		}
		if err := v.withdrawDefault(ctx, &locs[i], chosen.Name); err != nil {
			return err
		}
	}
	return nil
}

// chooseDefault returns the location that the flag names, where the flag changed since a default was
// accepted, else the one that was made the default last; nil for none.
func (v *Validator) chooseDefault(locs []velerov1.BackupStorageLocation) *velerov1.BackupStorageLocation {
	named, before := -1, unsetDefault
	for i := range locs {
		if value, ok := locs[i].Annotations[holdfast.AnnotationDefault]; ok {
			before = value
		}
		if locs[i].Name == v.Default {
			named = i
		}
	}
	if named >= 0 && v.Default != before {
		return &locs[named]
	}
	return location.ChosenDefault(locs)
}

// acceptDefault notes that a location is the default; false where that was taken off it meanwhile.
func (v *Validator) acceptDefault(ctx context.Context, loc *velerov1.BackupStorageLocation) (bool, error) {
	byFlag, gone := !loc.Spec.Default, false
	changed, err := v.changeLocation(ctx, loc, func(l *velerov1.BackupStorageLocation) bool {
		if gone = !l.Spec.Default && !byFlag; gone {
			return false
		}
		value, accepted := l.Annotations[holdfast.AnnotationDefault]
		if l.Spec.Default && accepted && (value == v.Default || l.Name != v.Default) {
			return false
		}
		l.Spec.Default = true
		metav1.SetMetaDataAnnotation(&l.ObjectMeta, holdfast.AnnotationDefault, v.Default)
		return true
	})
	if changed {
		v.Log.Info("Location is the default now", "location", loc.Name)
		v.Events.Eventf(loc, nil, corev1.EventTypeNormal, "Default", "Choose", "is the default location now")
	}
	return !gone, err
}

// withdrawDefault takes the default off a location in favour of another one. If something sets it again
// and again, the location gets an annotation that says so, and stays as it is.
func (v *Validator) withdrawDefault(ctx context.Context, loc *velerov1.BackupStorageLocation, chosen string) error {
	now := v.Clock.Now().UTC()
	withdrawn, refused := false, false
	_, err := v.changeLocation(ctx, loc, func(l *velerov1.BackupStorageLocation) bool {
		mark := l.Annotations[holdfast.AnnotationWithdrawn]
		text, repeated := strings.CutPrefix(mark, holdfast.WithdrawnRepeatedly)
		at, err := time.Parse(time.RFC3339, text)
		recent := err == nil && now.Sub(at) < toolResetWindow
		_, accepted := l.Annotations[holdfast.AnnotationDefault]
		delete(l.Annotations, holdfast.AnnotationDefault)
		refused = l.Spec.Default && repeated
		if withdrawn = l.Spec.Default && !repeated; !withdrawn {
			if mark != "" && !l.Spec.Default && !recent {
				delete(l.Annotations, holdfast.AnnotationWithdrawn)
				accepted = true
			}
			return accepted
		}
		l.Spec.Default, mark = false, now.Format(time.RFC3339)
		if recent {
			mark = holdfast.WithdrawnRepeatedly + mark
		}
		metav1.SetMetaDataAnnotation(&l.ObjectMeta, holdfast.AnnotationWithdrawn, mark)
		return true
	})
	switch {
	case err != nil:
		return err
	case withdrawn:
		v.Log.Info("Location is no longer the default", "location", loc.Name, "default", chosen)
		v.Events.Eventf(loc, nil, corev1.EventTypeNormal, "NotDefault", "Choose", "is no longer the default location: %q was made the default later", chosen)
	case refused && !v.refused[loc.UID]:
		v.refused[loc.UID] = true
		v.Events.Eventf(loc, nil, corev1.EventTypeWarning, "NotDefault", "Choose", "spec.default is set again and again, and location %q stays the default: "+
			"remove spec.default where a tool sets it, or remove it from %q first", chosen, chosen)
	}
	return nil
}

// changeLocation changes a location if mutate says so; false where there was nothing to do, or it is gone.
func (v *Validator) changeLocation(ctx context.Context, loc *velerov1.BackupStorageLocation, mutate func(*velerov1.BackupStorageLocation) bool) (bool, error) {
	if !mutate(loc.DeepCopy()) {
		return false, nil // by the cache, without a request
	}
	failpoint.Hit("manifest-indexer/before-default")
	changed := false
	err := kube.Update(ctx, v.Reader, v.Client, loc, func(l *velerov1.BackupStorageLocation) error {
		if changed = mutate(l); !changed {
			return kube.ErrSkip
		}
		return nil
	})
	failpoint.Hit("manifest-indexer/default-written")
	return changed && err == nil, client.IgnoreNotFound(err)
}
