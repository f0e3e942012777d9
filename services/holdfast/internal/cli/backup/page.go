package backup

import (
	"fmt"
	"strings"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/command"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/job"
)

func (d *Description) writeQueue(p *job.Page) {
	switch {
	case d.Queue != nil && d.Queue.Position > 0:
		p.Field(0, "Queue position", d.Queue.Position)
		p.Field(0, "Waits because", d.Queue.Message)
	case d.Backup.Status.QueuePosition > 0:
		p.Field(0, "Queue position", d.Backup.Status.QueuePosition)
	}
}

func (d *Description) writeSpec(p *job.Page) {
	s := &d.Backup.Spec
	p.Heading("Namespaces")
	p.Field(1, "Included", job.FormatNames(s.IncludedNamespaces, "*"))
	p.Field(1, "Excluded", job.FormatNames(s.ExcludedNamespaces, ""))
	p.Heading("Resources")
	if usesScopes(s) {
		p.Field(1, "Included cluster-scoped", job.FormatNames(s.IncludedClusterScopedResources, ""))
		p.Field(1, "Excluded cluster-scoped", job.FormatNames(s.ExcludedClusterScopedResources, ""))
		p.Field(1, "Included namespaced", job.FormatNames(s.IncludedNamespaceScopedResources, "*"))
		p.Field(1, "Excluded namespaced", job.FormatNames(s.ExcludedNamespaceScopedResources, ""))
	} else {
		p.Field(1, "Included", job.FormatNames(s.IncludedResources, "*"))
		p.Field(1, "Excluded", job.FormatNames(s.ExcludedResources, ""))
		p.Field(1, "Cluster-scoped", job.FormatOptionalBool(s.IncludeClusterResources, "auto"))
	}
	p.Gap()
	p.Field(0, "Label selector", command.FormatSelector(s.LabelSelector, s.OrLabelSelectors))
	p.Field(0, "Storage location", s.StorageLocation)
	p.Field(0, "TTL", s.TTL.Duration)
	p.Field(0, "Snapshot volumes", job.FormatOptionalBool(s.SnapshotVolumes, "auto"))
	p.Field(0, "File system volumes", job.FormatOptionalBool(s.DefaultVolumesToFsBackup, "false"))
	p.Field(0, "Move snapshot data", job.FormatOptionalBool(s.SnapshotMoveData, "false"))
}

func usesScopes(s *velerov1.BackupSpec) bool {
	return len(s.IncludedClusterScopedResources)+len(s.ExcludedClusterScopedResources)+
		len(s.IncludedNamespaceScopedResources)+len(s.ExcludedNamespaceScopedResources) > 0
}

func (d *Description) writeStatus(p *job.Page) {
	s := &d.Backup.Status
	p.Gap()
	p.Field(0, "Format version", s.FormatVersion)
	p.Field(0, "Started", command.FormatTime(s.StartTimestamp))
	p.Field(0, "Completed", command.FormatTime(s.CompletionTimestamp))
	p.Field(0, "Expiration", command.FormatTime(s.Expiration))
	if s.Progress != nil {
		p.Field(0, "Items", fmt.Sprintf("%d of %d", s.Progress.ItemsBackedUp, s.Progress.TotalItems))
	}
	p.Field(0, "Errors", s.Errors)
	p.Field(0, "Warnings", s.Warnings)
	if id := d.Backup.Annotations[holdfast.AnnotationPlan]; id != "" {
		p.Field(0, "Plan", id)
		p.Field(0, "Differences to the plan", d.Backup.Annotations[holdfast.AnnotationPlanDifferences])
	}
	if s.BackupItemOperationsAttempted > 0 {
		p.Field(0, "Operations", fmt.Sprintf("%d started, %d completed, %d failed",
			s.BackupItemOperationsAttempted, s.BackupItemOperationsCompleted, s.BackupItemOperationsFailed))
	}
	if s.HookStatus != nil {
		p.Field(0, "Hooks", fmt.Sprintf("%d run, %d failed", s.HookStatus.HooksAttempted, s.HookStatus.HooksFailed))
	}
}

func (d *Description) writeDeletions(p *job.Page) {
	if len(d.Deletions) == 0 {
		return
	}
	p.Heading("Deletion attempts")
	for i := range d.Deletions {
		r := &d.Deletions[i]
		p.Field(1, command.FormatTime(&r.CreationTimestamp), strings.TrimSpace(string(phaseOr(r.Status.Phase))))
		p.List(2, r.Status.Errors)
	}
}
