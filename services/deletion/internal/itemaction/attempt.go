package itemaction

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/archive/tarball"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost"
	"github.com/holdfast-io/holdfast/pkg/json/rawjson"
	"github.com/holdfast-io/holdfast/pkg/kube/objmeta"
)

// maxUnanswered is how many calls in a row an action may leave unanswered before it is given up.
// Each takes as long as a call may take, and the items of a backup are many.
const maxUnanswered = 3

// attempt is one attempt to show the items of a backup to the delete item actions.
type attempt struct {
	job      Job
	log      *slog.Logger
	metrics  *Metrics
	plugins  *PluginUse
	manifest *manifest.Reader // nil when the backup has none that can be used
	backup   *action.Backup
	bound    []*attemptAction
	failed   *FailedError
	pending  []*attemptAction // reused from item to item
}

// attemptAction is an action in this attempt.
type attemptAction struct {
	action.Bound[action.DeleteItem]
	unanswered int  // calls in a row
	givenUp    bool // it is not called any more
	left       int  // items it was not shown since
}

// backupItem is one object of the backup.
type backupItem struct {
	path      string
	resource  schema.GroupResource
	namespace string
	labels    labels.Labels // nil with unread
	unread    bool          // labels are only known from the body
	body      func(ctx context.Context) ([]byte, error)
}

// showAllItems shows every item to the actions that apply to it. An error ends the attempt; failures of
// items are in failed.
func (w *attempt) showAllItems(ctx context.Context) error {
	if w.manifest != nil {
		err := w.byManifest(ctx)
		if !errors.Is(err, manifest.ErrCorrupt) {
			return err
		}
		w.log.Warn("Manifest is damaged; reading the tarball instead", "error", err)
		w.failed = &FailedError{} // all items come again
		for _, a := range w.bound {
			a.left = 0
		}
	}
	return w.byTarball(ctx)
}

// pendingActions returns the actions that want the item, as far as that is known. It ends at an action
// that was given up, because the ones behind it may count on its work. Valid until the next call.
func (w *attempt) pendingActions(it *backupItem) []*attemptAction {
	w.pending = w.pending[:0]
	for _, a := range w.bound {
		if !a.wantsItem(it) {
			continue
		}
		w.pending = append(w.pending, a)
		if a.givenUp {
			break
		}
	}
	return w.pending
}

func (a *attemptAction) wantsItem(it *backupItem) bool {
	return a.Resource(it.resource) && a.Namespace(it.namespace) && (it.unread || a.Labels(it.labels))
}

// callItemActions gives one item to its actions in order, and stops at the first that fails: the later ones
// may depend on its work. An error ends the attempt.
func (w *attempt) callItemActions(ctx context.Context, it *backupItem) error {
	if todo := w.pendingActions(it); len(todo) == 0 || todo[0].givenUp && !it.unread {
		w.countSkipped(todo)
		return nil
	}
	body, err := it.body(ctx)
	if isDamaged(err) {
		w.failed.addError(err)
		return nil
	}
	if err != nil {
		return err
	}
	if it.unread {
		var meta objmeta.Meta
		if err := objmeta.Decode(rawjson.Lookup(body, "metadata"), &meta); err != nil {
			w.failed.addError(fmt.Errorf("%s: %w", it.path, err))
			return nil
		}
		it.labels, it.unread = meta.Labels, false
	}
	object := action.FromJSON(body)
	for i, a := range w.pendingActions(it) {
		if a.givenUp {
			w.countSkipped(w.pending[i:])
			return nil
		}
		if done, err := w.callAction(ctx, a, it, object); !done || err != nil {
			return err
		}
	}
	return nil
}

// countSkipped counts an item for the action that it was not shown to.
func (w *attempt) countSkipped(todo []*attemptAction) {
	if len(todo) > 0 {
		todo[0].left++
	}
}

// callAction has one action do its work for one item. done reports that nothing is left of it; an error
// ends the attempt.
func (w *attempt) callAction(ctx context.Context, a *attemptAction, it *backupItem, object *action.Object) (done bool, err error) {
	name := a.Action.Name()
	wants, err := a.Accepts(ctx, object)
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	if err != nil {
		w.failed.addError(fmt.Errorf("plugin %s: AppliesTo for %s: %w", name, it.path, err))
		return false, nil
	}
	if !wants {
		return true, nil
	}
	if err := w.job.Confirm(ctx); err != nil {
		return false, err
	}
	if err := w.plugins.AddPlugin("plugin " + name); err != nil {
		return false, err
	}
	err = a.Action.Execute(ctx, object, w.backup)
	if err != nil && ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	a.noteAnswer(err)
	w.metrics.countCall(name, err)
	if err != nil {
		w.failed.addError(err)
		return false, nil
	}
	return true, nil
}

// noteAnswer gives an action up that does not answer.
func (a *attemptAction) noteAnswer(err error) {
	switch {
	case errors.Is(err, pluginhost.ErrStopped):
		a.givenUp = true
	case errors.Is(err, pluginhost.ErrTimeout):
		a.unanswered++
		a.givenUp = a.unanswered >= maxUnanswered
	default:
		a.unanswered = 0
	}
}

// isDamaged reports errors of the content, which come again whenever the item is read.
func isDamaged(err error) bool {
	return errors.Is(err, tarball.ErrCorrupt) || errors.Is(err, tarball.ErrMismatch) || errors.Is(err, tarball.ErrTooLarge)
}
