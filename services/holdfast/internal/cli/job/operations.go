package job

import (
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/command"
)

// Operations writes the running operations of a job that its annotation lists; nothing where
// none do.
func (p *Page) Operations(job metav1.Object, now time.Time) {
	sum, ok, err := operation.ReadSummary(job)
	if !ok || err != nil || len(sum.Running) == 0 {
		return
	}
	p.Heading("Running operations")
	for i := range sum.Running {
		r := &sum.Running[i]
		parts := []string{string(r.Phase), command.FormatBar(r.Completed, r.Total), command.FormatAmount(r.Completed, r.Total, r.Units), r.Description}
		if r.Created != nil {
			parts = append(parts, "started "+duration.ShortHumanDuration(now.Sub(*r.Created))+" ago")
		}
		p.Field(1, r.Action+" "+r.Item, joinTexts(parts))
		p.Field(2, "ID", r.ID)
	}
	if more := sum.Total - sum.Completed - sum.Failed - len(sum.Running); more > 0 {
		p.Field(1, "More", more)
	}
}

// joinTexts joins what is not empty.
func joinTexts(parts []string) string {
	var full []string
	for _, part := range parts {
		if part != "" {
			full = append(full, part)
		}
	}
	return strings.Join(full, ", ")
}
