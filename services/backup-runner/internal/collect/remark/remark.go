// Package remark makes the log entries about objects of a backup, and about what it does not do for
// stored pods, claims and volumes.
package remark

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/reference"
	"github.com/holdfast-io/holdfast/pkg/extension/csisnapshot"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/pkg/kube/objmeta"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/wellknown"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/volume"
)

// Source is what the log lines of a backup name as their origin.
const Source = "holdfast/backup-runner"

// About is a log entry about an object.
func About(gr schema.GroupResource, namespace, name, message string, err error) joblog.Entry {
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

var shortened = fmt.Sprintf("the manifest names the first %d of the objects this one refers to", reference.Max)

// Shortened is the entry that the manifest does not name all that an object refers to.
func Shortened(gr schema.GroupResource, namespace, name string) joblog.Entry {
	e := About(gr, namespace, name, shortened, nil)
	e.Level = joblog.Info
	return e
}

// Rules are what a backup does with volumes.
type Rules struct {
	// ByChoice is true when the backup was asked not to take volume data.
	ByChoice bool
	// Snapshots is true when volumes are decided on once everything is collected.
	Snapshots bool
	// Backup and UID are the backup's.
	Backup, UID string
}

// Of returns the messages about a stored pod, claim or volume: what a pod's annotations request and
// this version does not do, and whether a claim's volume is backed up, unless that is decided once
// everything is collected.
func (r Rules) Of(gr schema.GroupResource, m *objmeta.Meta, raw []byte) (entries []joblog.Entry, _ *volume.Info) {
	switch gr {
	case wellknown.Pods:
		for _, message := range unservedMessages(m.Annotations) {
			e := About(gr, m.Namespace, m.Name, message, nil)
			e.Level = joblog.Error
			entries = append(entries, e)
		}
	case wellknown.Claims:
		return r.claimRemarks(m, raw)
	case wellknown.Snapshots:
		if m.Labels.Get(velerov1.LabelBackupUID) == r.UID && m.Annotations.Has(csisnapshot.AnnotationVolume) {
			return snapshotVolumeInfo(m, raw)
		}
	case wellknown.Volumes:
		if r.Snapshots {
			return nil, &volume.Info{PVName: strings.Clone(m.Name), Pending: true}
		}
	}
	return entries, nil
}

// snapshotVolumeInfo is what a CSI snapshot of the backup is of.
func snapshotVolumeInfo(m *objmeta.Meta, raw []byte) ([]joblog.Entry, *volume.Info) {
	info, err := volume.OfCSI(raw)
	if err != nil {
		e := About(wellknown.Snapshots, m.Namespace, m.Name, "the volume of this snapshot is unknown", err)
		e.Level = joblog.Error
		return []joblog.Entry{e}, nil
	}
	return nil, &info
}

// hasCSISnapshot reports whether the claim, as it is stored, names its CSI snapshot of this backup,
// which has what becomes of its data.
func (r Rules) hasCSISnapshot(m *objmeta.Meta) bool {
	name := m.Annotations.Get(velerov1.LabelVolumeSnapshotName)
	return name != "" && m.Labels.Get(velerov1.LabelVolumeSnapshotName) == name && m.Labels.Get(velerov1.LabelBackupName) == velerov1.LabelValue(r.Backup)
}

func (r Rules) claimRemarks(m *objmeta.Meta, raw []byte) ([]joblog.Entry, *volume.Info) {
	if r.hasCSISnapshot(m) {
		return nil, nil
	}
	info, err := volume.Skipped(raw, r.ByChoice)
	if err != nil {
		e := About(wellknown.Claims, m.Namespace, m.Name, "the volume of this claim is unknown", err)
		e.Level = joblog.Error
		return []joblog.Entry{e}, nil
	}
	info.PVCName, info.PVCNamespace = strings.Clone(m.Name), strings.Clone(m.Namespace)
	if r.ByChoice {
		return nil, &info
	}
	if r.Snapshots && info.PVName != "" {
		return nil, &volume.Info{PVCName: info.PVCName, PVCNamespace: info.PVCNamespace, PVName: info.PVName, Pending: true}
	}
	e := About(wellknown.Claims, m.Namespace, m.Name, "volume data was not backed up: "+info.SkippedReason, nil)
	e.Level = joblog.Warning
	return []joblog.Entry{e}, &info
}
