package acting

import (
	"context"
	"fmt"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/kube/objmeta"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/actionset"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/itemset"
)

// relatedItems calls the actions that match the object. A failure of one is an error of the backup.
func (a *Arranger) relatedItems(ctx context.Context, m *Member, it *itemset.SpooledItem) ([]action.Item, error) {
	w := a.Actions.Wants(it.GroupResource())
	if w == nil || len(w.Blocks) == 0 {
		return nil, nil
	}
	o, err := actionset.ParseObject(it.GroupVersionKind(), it.Raw)
	if err != nil {
		return nil, nil //nolint:nilerr // processing it fails with that
	}
	object := action.FromJSON(o.Raw)
	var out []action.Item
	for i := range w.Blocks {
		items, err := relatedBy(ctx, &w.Blocks[i], o.Meta, object, a.Actions.Backup)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err != nil {
			m.Errors = append(m.Errors, err)
			continue
		}
		out = append(out, items...)
	}
	return out, nil
}

// relatedBy calls one action. A panic is an error.
func relatedBy(ctx context.Context, b *action.Bound[action.ItemBlock], m *objmeta.Meta, o *action.Object, backup *action.Backup) (items []action.Item, err error) {
	name := b.Action.Name()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("action %s: GetRelatedItems: panic: %v", name, p)
		}
	}()
	raw, err := o.JSON()
	if err != nil || !actionset.MatchesObject(b, m, raw) {
		return nil, err
	}
	wants, err := b.Accepts(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("action %s: AppliesTo: %w", name, err)
	}
	if !wants {
		return nil, nil
	}
	return b.Action.Related(ctx, o, backup)
}
