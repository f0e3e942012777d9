package flight

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/csisnapshot"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/object"
)

// skipSnapshot keeps the objects of CSI snapshots out, which would take a new snapshot or, when
// deleted, remove the snapshot of the backup. Those that the backup made are restored with the
// claims that are filled from them, and not at all where volumes are not restored; nor do classes
// then (Velero 1.18).
func (s *Screen) skipSnapshot(o *object.Object, gr schema.GroupResource) *apply.Skip {
	switch gr {
	case csisnapshot.Classes:
		if !s.Volumes.Wanted() {
			return &apply.Skip{Reason: "volumes are not restored"}
		}
	case csisnapshot.Snapshots, csisnapshot.Contents:
		if object.LabelsOf(o.Body).Get(velerov1.LabelBackupName) == "" {
			return &apply.Skip{Reason: "only the snapshots of claims that the backup took are restored", Report: true}
		}
		return &apply.Skip{Reason: "claims that are filled from the snapshot get one of their own"}
	}
	return nil
}
