package location

import (
	"strings"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// ChosenDefault returns the default among locations, nil when there is none: one that was made the default
// since the last one was accepted, else that one. Of several the newest counts (Velero 1.18 goes by
// that alone); names break ties.
func ChosenDefault(locs []velerov1.BackupStorageLocation) *velerov1.BackupStorageLocation {
	var chosen *velerov1.BackupStorageLocation
	for i := range locs {
		if locs[i].Spec.Default && (chosen == nil || isNewerDefault(&locs[i], chosen)) {
			chosen = &locs[i]
		}
	}
	return chosen
}

// isNewerDefault reports that a was made the default after b.
func isNewerDefault(a, b *velerov1.BackupStorageLocation) bool {
	switch x, y := defaultRank(a), defaultRank(b); {
	case x != y:
		return x > y
	case !a.CreationTimestamp.Equal(&b.CreationTimestamp):
		return b.CreationTimestamp.Before(&a.CreationTimestamp)
	}
	return a.Name < b.Name
}

// defaultRank orders the defaults: refused, accepted, new.
func defaultRank(loc *velerov1.BackupStorageLocation) int {
	if _, accepted := loc.Annotations[holdfast.AnnotationDefault]; accepted {
		return 1
	}
	if strings.HasPrefix(loc.Annotations[holdfast.AnnotationWithdrawn], holdfast.WithdrawnRepeatedly) {
		return 0
	}
	return 2
}
