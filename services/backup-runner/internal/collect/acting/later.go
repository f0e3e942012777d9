package acting

import (
	"context"
	"errors"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/partwriter"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/itemset"
)

// postponedItem is an additional item that no object waits for: too many objects asked for one another
// before. It goes into the part of the object that asked.
type postponedItem struct {
	by itemset.SpooledItem // without its body
	request
	item action.Item
}

// itemNames returns the object without its body.
func (s *processedObject) itemNames() itemset.SpooledItem {
	it := s.SpooledItem
	it.Raw = nil
	return it
}

// drainPostponed processes what was put off, and what that puts off. After an error the objects that asked
// must not be recorded.
func (a *objectProcessor) drainPostponed(ctx context.Context) error {
	for i := 0; i < len(a.later); i++ {
		if err := a.processPostponed(ctx, a.later[i]); err != nil {
			return err
		}
	}
	a.later = nil
	return nil
}

// processPostponed processes an item that was put off. What becomes of it is no matter of the object that
// asked, which is done.
func (a *objectProcessor) processPostponed(ctx context.Context, l postponedItem) error {
	s, item := &processedObject{SpooledItem: l.by}, l.item
	err := a.backupAdditional(ctx, s, &l.request, item)
	var broken *fatalError
	switch {
	case errors.As(err, &broken):
		return broken.err
	case err != nil && !errors.Is(err, errFailed): // else its own error is noted
		return a.out.Fail(partwriter.EntryAbout(item.GroupResource, item.Namespace, item.Name, "an object that an action asks for could not be read: it is not backed up", err))
	}
	return a.noteProblems(s)
}
