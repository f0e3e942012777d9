package acting

import (
	"context"
	"errors"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
)

// prestartBlock lets actions begin their work for those objects of a block that have not had their turn, so
// that it runs concurrently. What they begin is named by the keys of the calls that follow.
func (a *objectProcessor) prestartBlock(ctx context.Context, b *Block) error {
	if len(b.Members) < 2 || a.pool.Again { //nolint:mnd // alone there is nothing beside it
		return nil
	}
	objects := map[action.Prestarter][]action.Keyed{}
	for i := range b.Members {
		a.addToPrestarters(objects, &b.Members[i])
	}
	for beginner, keyed := range objects {
		if len(keyed) < 2 { //nolint:mnd // as above
			continue
		}
		err := a.pool.confirmClaim(ctx)
		var broken *fatalError
		if errors.As(err, &broken) {
			return broken.err
		}
		beginner.Prestart(ctx, keyed)
	}
	return nil
}

// addToPrestarters adds a member to the objects of the actions that may begin their work for it.
func (a *objectProcessor) addToPrestarters(objects map[action.Prestarter][]action.Keyed, m *Member) {
	if !a.pool.Items.Result(m.Key).Waits(false) {
		return
	}
	gr, namespace, name := m.Item.GroupResource, m.Item.Namespace, m.Item.Name
	if name == "" {
		gr, namespace, name = m.Named.GroupResource(), m.Named.Namespace, m.Named.Name
	}
	w := a.pool.Actions.Wants(gr)
	if w == nil || name == "" {
		return
	}
	for i := range w.Chain.Actions {
		one := w.Chain.Actions[i].Action
		if beginner, ok := one.(action.Prestarter); ok {
			key := operation.Key(string(a.pool.Actions.Backup.Backup().UID), one.Name(),
				&operation.Resource{Group: gr.Group, Resource: gr.Resource, Namespace: namespace, Name: name})
			objects[beginner] = append(objects[beginner], action.Keyed{Namespace: namespace, Name: name, Key: key})
		}
	}
}
