package holdfast

import (
	"maps"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// slotFormat is how a slot's time ends the name of its Backup.
const slotFormat = "20060102150405"

// ScheduledBackupName is the name of the Backup of one slot: the same for everybody, whatever the time zone of
// their process (Velero 1.18 writes the server's local time).
func ScheduledBackupName(schedule string, slot time.Time) string {
	return schedule + "-" + slot.UTC().Format(slotFormat)
}

// ScheduledBackup returns the Backup a Schedule describes, under the given name and not yet created (rules
// of Velero 1.18): the template as the spec, the template's labels or else the Schedule's, its
// annotations, and the Schedule as controller if it asks for that. What marks an object as managed
// by a deployment tool is left out, for the tool would take the Backup for its own and remove it;
// so are Holdfast's own notes on the Schedule.
func ScheduledBackup(s *velerov1.Schedule, name string) *velerov1.Backup {
	template := s.Spec.Template.DeepCopy()
	b := &velerov1.Backup{
		TypeMeta:   metav1.TypeMeta{APIVersion: velerov1.GroupVersion.String(), Kind: "Backup"},
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name},
		Spec:       *template,
	}
	b.Labels = maps.Clone(template.Metadata.Labels)
	if len(b.Labels) == 0 {
		b.Labels = maps.Clone(s.Labels)
		maps.DeleteFunc(b.Labels, isSharedKey)
	}
	maps.DeleteFunc(b.Labels, isTrackingKey)
	metav1.SetMetaDataLabel(&b.ObjectMeta, velerov1.LabelScheduleName, s.Name)
	b.Annotations = maps.Clone(s.Annotations)
	maps.DeleteFunc(b.Annotations, isTrackingKey)
	maps.DeleteFunc(b.Annotations, isOwnKey)
	if ptr.Deref(s.Spec.UseOwnerReferencesInBackup, false) {
		b.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: velerov1.GroupVersion.String(), Kind: "Schedule", Name: s.Name, UID: s.UID, Controller: ptr.To(true),
		}}
	}
	return b
}
