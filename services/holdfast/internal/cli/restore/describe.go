package restore

import (
	"context"
	"fmt"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/command"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/job"
)

// Description is everything known about one restore, as -o prints it.
type Description struct {
	Restore *velerov1.Restore `json:"restore"`
	*job.Files
}

func describeRestore(_ context.Context, _ *job.Session, r *velerov1.Restore, files *job.Files) (job.Description, error) {
	d := &Description{Restore: r, Files: files}
	return job.Description{Value: d, Spec: d.writeSpec, Status: d.writeStatus}, nil
}

func (d *Description) writeSpec(p *job.Page) {
	s := &d.Restore.Spec
	p.Gap()
	p.Field(0, "Backup", s.BackupName)
	if s.ScheduleName != "" {
		p.Field(0, "Schedule", s.ScheduleName)
	}
	d.writeItems(p)
	p.Heading("Namespaces")
	p.Field(1, "Included", job.FormatNames(s.IncludedNamespaces, "*"))
	p.Field(1, "Excluded", job.FormatNames(s.ExcludedNamespaces, ""))
	p.Heading("Resources")
	p.Field(1, "Included", job.FormatNames(s.IncludedResources, "*"))
	p.Field(1, "Excluded", job.FormatNames(s.ExcludedResources, ""))
	p.Field(1, "Cluster-scoped", job.FormatOptionalBool(s.IncludeClusterResources, "auto"))
	p.Gap()
	p.Map("Namespace mappings", s.NamespaceMapping)
	p.Field(0, "Label selector", command.FormatSelector(s.LabelSelector, s.OrLabelSelectors))
	p.Field(0, "Existing resources", string(s.ExistingResourcePolicy))
	p.Field(0, "Restore volumes", job.FormatOptionalBool(s.RestorePVs, "auto"))
	p.Field(0, "Preserve node ports", job.FormatOptionalBool(s.PreserveNodePorts, "auto"))
}

func (d *Description) writeStatus(p *job.Page) {
	s := &d.Restore.Status
	p.Gap()
	p.Field(0, "Started", command.FormatTime(s.StartTimestamp))
	p.Field(0, "Completed", command.FormatTime(s.CompletionTimestamp))
	if s.Progress != nil {
		p.Field(0, "Items", fmt.Sprintf("%d of %d", s.Progress.ItemsRestored, s.Progress.TotalItems))
	}
	p.Field(0, "Errors", s.Errors)
	p.Field(0, "Warnings", s.Warnings)
}
