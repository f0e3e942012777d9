package partwriter

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/reference"
	"github.com/holdfast-io/holdfast/pkg/extension/csisnapshot"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/pkg/kube/objmeta"
	"github.com/holdfast-io/holdfast/pkg/spec/hook"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/plan"
)

// LogSource is what the log lines of a backup name as their origin.
const LogSource = "holdfast/backup-runner"

// EntryAbout is a log entry about an object.
func EntryAbout(gr schema.GroupResource, namespace, name, message string, err error) joblog.Entry {
	e := joblog.Entry{Message: message, Scoped: true, Namespace: namespace, Resource: gr.String(), Name: name}
	if err != nil {
		e.Err = err.Error()
	}
	return e
}

// ObjectKey names an object as an API server orders it in lists.
func ObjectKey(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

var shortenedMessage = fmt.Sprintf("the manifest names the first %d of the objects this one refers to", reference.Max)

// ShortenedEntry is the entry that the manifest does not name all that an object refers to.
func ShortenedEntry(gr schema.GroupResource, namespace, name string) joblog.Entry {
	e := EntryAbout(gr, namespace, name, shortenedMessage, nil)
	e.Level = joblog.Info
	return e
}

const groupMessage = "the label " + velerov1.LabelVolumeGroup + " asks for one snapshot of a group of volumes, which Holdfast does not take: " +
	"this volume is backed up by itself, at another moment than the others of its group"

// VolumeRules are what a backup does with volumes.
type VolumeRules struct {
	// ByChoice is true when the backup was asked not to take volume data.
	ByChoice bool
	// Snapshots is true when volumes are decided on once everything is collected.
	Snapshots bool
	// Backup and UID are the backup's.
	Backup, UID string
}

// NewVolumeRules returns the rules of a backup. With snapshots volumes are decided on at the end.
func NewVolumeRules(b *velerov1.Backup, snapshots bool) VolumeRules {
	choice := b.Spec.SnapshotVolumes
	return VolumeRules{ByChoice: choice != nil && !*choice, Snapshots: snapshots, Backup: b.Name, UID: string(b.UID)}
}

// Of returns the messages about a stored pod, claim or volume: a pod's annotations that hooks of
// backups and restores do not have, and whether a claim's volume is backed up, unless that is decided
// once everything is collected.
func (r VolumeRules) Of(gr schema.GroupResource, m *objmeta.Meta, raw []byte) (entries []joblog.Entry, _ *checkpoint.VolumeInfo) {
	switch gr {
	case plan.Pods:
		for i := range m.Annotations {
			if message := hook.UnknownKey(m.Annotations[i].Key); message != "" {
				e := EntryAbout(gr, m.Namespace, m.Name, message, nil)
				e.Level = joblog.Warning
				entries = append(entries, e)
			}
		}
	case plan.Claims:
		entries, info := r.claimRemarks(m, raw)
		if !r.ByChoice && m.Labels.Get(velerov1.LabelVolumeGroup) != "" {
			e := EntryAbout(gr, m.Namespace, m.Name, groupMessage, nil)
			e.Level = joblog.Warning
			entries = append(entries, e)
		}
		return entries, info
	case plan.Snapshots:
		if m.Labels.Get(velerov1.LabelBackupUID) == r.UID && m.Annotations.Has(csisnapshot.AnnotationVolume) {
			return snapshotVolumeInfo(m, raw)
		}
	case plan.Volumes:
		if r.Snapshots {
			return nil, &checkpoint.VolumeInfo{PVName: strings.Clone(m.Name), Pending: true}
		}
	}
	return entries, nil
}

// snapshotVolumeInfo is what a CSI snapshot of the backup is of.
func snapshotVolumeInfo(m *objmeta.Meta, raw []byte) ([]joblog.Entry, *checkpoint.VolumeInfo) {
	info, err := checkpoint.VolumeOfCSI(raw)
	if err != nil {
		e := EntryAbout(plan.Snapshots, m.Namespace, m.Name, "the volume of this snapshot is unknown", err)
		e.Level = joblog.Error
		return []joblog.Entry{e}, nil
	}
	return nil, &info
}

// hasCSISnapshot reports whether the claim, as it is stored, names its CSI snapshot of this backup,
// which has what becomes of its data.
func (r VolumeRules) hasCSISnapshot(m *objmeta.Meta) bool {
	name := m.Annotations.Get(velerov1.LabelVolumeSnapshotName)
	return name != "" && m.Labels.Get(velerov1.LabelVolumeSnapshotName) == name && m.Labels.Get(velerov1.LabelBackupName) == velerov1.LabelValue(r.Backup)
}

func (r VolumeRules) claimRemarks(m *objmeta.Meta, raw []byte) ([]joblog.Entry, *checkpoint.VolumeInfo) {
	moved := r.hasCSISnapshot(m) && m.Annotations.Has(velerov1.AnnotationDataUploadName)
	if r.hasCSISnapshot(m) && !moved {
		return nil, nil
	}
	info, err := checkpoint.SkippedVolume(raw, r.ByChoice)
	if moved {
		info, err = checkpoint.VolumeOfMoved(raw, types.UID(r.UID))
	}
	if err != nil {
		e := EntryAbout(plan.Claims, m.Namespace, m.Name, "the volume of this claim is unknown", err)
		e.Level = joblog.Error
		return []joblog.Entry{e}, nil
	}
	info.PVCName, info.PVCNamespace = strings.Clone(m.Name), strings.Clone(m.Namespace)
	if r.ByChoice || moved {
		return nil, &info
	}
	if r.Snapshots && info.PVName != "" {
		return nil, &checkpoint.VolumeInfo{PVCName: info.PVCName, PVCNamespace: info.PVCNamespace, PVName: info.PVName, Pending: true}
	}
	e := EntryAbout(plan.Claims, m.Namespace, m.Name, "volume data was not backed up: "+info.SkippedReason, nil)
	e.Level = joblog.Warning
	return []joblog.Entry{e}, &info
}
