package collect

import (
	"fmt"
	"slices"

	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/pkg/kube/resource"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/plan"
)

// Vanished notes the units of kinds that the first holder planned, and that are not among those
// that are served now.
func (w *unitWorker) Vanished(kinds []checkpoint.Kind, served []plan.Kind, catalog *resource.Catalog) error {
	for _, kind := range kinds {
		if slices.ContainsFunc(served, func(k plan.Kind) bool { return k.Name() == kind }) {
			continue
		}
		for u := range plan.Named(kind).Units(w.cfg.Filter) {
			if err := w.noteLostUnit(&u, catalog); err != nil {
				return err
			}
		}
	}
	return nil
}

// noteLostUnit notes a unit that cannot be listed any more, unless it is done.
func (w *unitWorker) noteLostUnit(u *plan.Unit, catalog *resource.Catalog) error {
	id, kind := u.ID(), u.Res.String()
	if w.cfg.Past.Done(id) {
		return nil
	}
	at, _ := w.cfg.Past.At(id)
	reason := "it is no longer served"
	if group := u.Res.Kind.Group; plan.Silent(catalog, group) {
		reason = fmt.Sprintf("API group %q does not answer", group)
	}
	message := fmt.Sprintf("objects of this kind could not be listed, %s: they are not backed up", reason)
	if at.Last != "" {
		message = fmt.Sprintf("objects of this kind could not be listed beyond %q, %s: the rest of them is not backed up", at.Last, reason)
	}
	if err := w.out.Fail(joblog.Entry{Message: message, Scoped: true, Namespace: u.Namespace, Resource: kind}); err != nil {
		return err
	}
	w.out.Cover(checkpoint.Range{Unit: id, Resource: kind, Kind: at.Kind, Namespace: u.Namespace, Revision: at.Revision,
		Reason: at.Reason, After: at.Last, Last: at.Last, Done: true})
	return nil
}
