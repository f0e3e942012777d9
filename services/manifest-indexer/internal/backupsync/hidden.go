package backupsync

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/location"
)

// maxHidden bounds the backups of a location that one sync reports; the next one goes on.
const maxHidden = 10

// hiddenBackup is a backup of a location that has no object.
type hiddenBackup struct {
	location types.UID
	name     string
}

// reportHidden records, once for each, which backups of a location are not shown because a backup of another
// location has their name.
func (s *Syncer) reportHidden(ctx context.Context, loc *velerov1.BackupStorageLocation, store objectstore.Reader, backups []metav1.PartialObjectMetadata, stored map[string]bool) {
	reported := 0
	for i := range backups {
		name, owner := backups[i].Name, backups[i].Labels[velerov1.LabelStorageLocation]
		at := hiddenBackup{loc.UID, name}
		if !stored[name] || owner == "" || owner == velerov1.LabelValue(loc.Name) || s.warned[at] != "" || s.sharesPlace(ctx, loc, owner) {
			continue
		}
		there, err := objectstore.Exists(ctx, store, layout.BackupMetadata(name))
		if err != nil || reported == maxHidden {
			return
		}
		if !there {
			continue // it is being written, or a left-over
		}
		reported++
		s.Log.Warn("Another location has a backup of this name; the one in the bucket is not synced", "location", loc.Name, "backup", name, "other", owner)
		s.warnOnce(loc, name, "BackupNotShown", fmt.Sprintf("backup %q is not shown: a backup of location %q has its name. "+
			"Add this location to another cluster or namespace to use it, or delete one of the two", name, owner))
	}
}

// warnOnce records a warning about a backup of a location, "" for all of them, unless it is the last one that was recorded of it.
func (s *Syncer) warnOnce(loc *velerov1.BackupStorageLocation, backup, reason, text string) {
	at := hiddenBackup{loc.UID, backup}
	if s.Events == nil || s.warned[at] == text {
		return
	}
	s.warned[at] = text
	// Events that differ in their text alone are counted as one; the backup tells them apart.
	about := &corev1.ObjectReference{APIVersion: velerov1.GroupVersion.String(), Kind: "Backup", Namespace: loc.Namespace, Name: backup}
	s.Events.Eventf(loc, about, corev1.EventTypeWarning, reason, "Sync", "%.250s", text)
}

// sharesPlace reports that a location, by its label, is in the same place as loc: their backups are the same.
func (s *Syncer) sharesPlace(ctx context.Context, loc *velerov1.BackupStorageLocation, label string) bool {
	list := &velerov1.BackupStorageLocationList{}
	if err := s.Cached.List(ctx, list, client.InNamespace(s.Namespace)); err != nil {
		return false
	}
	for i := range list.Items {
		other := &list.Items[i]
		if velerov1.LabelValue(other.Name) != label || location.Provider(other) != location.Provider(loc) || other.Spec.ObjectStorage == nil || loc.Spec.ObjectStorage == nil {
			continue
		}
		a, b := other.Spec.ObjectStorage, loc.Spec.ObjectStorage
		return a.Bucket == b.Bucket && a.Prefix == b.Prefix && maps.Equal(other.Spec.Config, loc.Spec.Config)
	}
	return false
}
