package job

import (
	"context"
	"errors"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
	"github.com/holdfast-io/holdfast/pkg/spec/selection"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/plan"
)

// itemsField begins what is wrong with the items that a restore names.
func (s *session) itemsField() string {
	if s.restoresFiles() {
		return "metadata.annotations[" + holdfast.AnnotationFiles + "]: "
	}
	return "metadata.annotations[" + holdfast.AnnotationItems + "]: "
}

// maxProblems is how many unknown items a restore lists.
const maxProblems = 50

// heapPerObject is the memory of planning for each object of the backup.
func heapPerObject(items *selection.Items) int64 {
	if len(items.Named) > 0 {
		return plan.HeapPerObject + plan.HeapOfParts
	}
	return plan.HeapPerObject
}

// findParts finds the objects that the restore names, and what comes along; nil if it names none. Those that the
// backup does not hold are an *unselectedError, for a successor of the first holder the end of the restore.
func (p *restorePlanner) findParts(ctx context.Context, source plan.Source, items selection.Items) (*plan.Parts, error) {
	if len(items.Named) == 0 {
		return nil, nil //nolint:nilnil // no parts are all of the backup
	}
	parts, problems, err := plan.FindParts(ctx, source, items)
	switch {
	case errors.Is(err, manifest.ErrTooLarge):
		return nil, fatalErrorf("%s%w", p.in.itemsField(), err)
	case err != nil:
		return nil, err
	case len(problems) == 0:
		return parts, nil
	case p.in.records.head.Planned != nil:
		return nil, fatalErrorf("%s%s", p.in.itemsField(), ledger.JoinNames(problems))
	}
	texts := make([]string, min(len(problems), maxProblems))
	for i := range texts {
		texts[i] = p.in.itemsField() + problems[i]
	}
	return nil, &unselectedError{texts}
}
