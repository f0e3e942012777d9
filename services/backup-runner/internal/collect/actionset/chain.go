package actionset

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/kube/objmeta"
)

// BoundItem is a backup item action with its selector.
type BoundItem = action.Bound[action.BackupItem]

// Chain are the actions that may match objects of one resource, in the order in which they run.
// Immutable, safe for concurrent use.
type Chain struct {
	Resource schema.GroupResource
	Actions  []BoundItem
	Backup   *action.Backup
}

// Result is what the actions made of an object.
type Result struct {
	// Object is what to store.
	Object Object
	// Changed reports that it is not the object given.
	Changed bool
	// Applied are the names of the actions that ran.
	Applied []string
	// LeftOut is the action that keeps the object out of the backup, if one does.
	LeftOut string
	// Problems are errors of the backup that do not cost it the object. They count also where Run
	// returns an error.
	Problems []error
}

// Host is who runs a chain.
type Host interface {
	// Execute calls an action, as Execute of this package does. An error is one of the object. The
	// answer names an operation only if nothing waits for it.
	Execute(ctx context.Context, a action.BackupItem, o *action.Object, b *action.Backup) (action.BackupResult, error)
	// Additional backs up the objects an action named, before the one it named them for. With must
	// the filters do not count. An error fails the object.
	Additional(ctx context.Context, by string, items []action.Item, must bool) error
}

// MatchesObject reports whether an action may want the object, as far as that is known without decoding
// it. It allocates nothing.
func MatchesObject[A action.Action](b *action.Bound[A], m *objmeta.Meta, raw []byte) bool {
	if !b.Namespace(m.Namespace) || !b.Labels(&m.Labels) {
		return false
	}
	s, ok := any(b.Action).(screener)
	return !ok || s.Concerns(raw)
}

// screener is an action for which most objects are of no concern; those of package builtin may be.
type screener interface{ Concerns(raw []byte) bool }

// Run calls the actions that match. An error is one of the object, which is not to be stored then,
// unless ctx has ended or host returned it.
func (c *Chain) Run(ctx context.Context, o Object, host Host) (Result, error) {
	out := Result{Object: o}
	for i := range c.Actions {
		b := &c.Actions[i]
		if !MatchesObject(b, out.Object.Meta, out.Object.Raw) {
			continue
		}
		wants, err := b.Accepts(ctx, out.Object.decodedObject())
		if err != nil {
			return out, fmt.Errorf("action %s: AppliesTo: %w", b.Action.Name(), err)
		}
		if !wants {
			continue
		}
		if err := c.runAction(ctx, b.Action, &out, host); err != nil || out.LeftOut != "" {
			return out, err
		}
	}
	return out, nil
}

// runAction runs one action.
func (c *Chain) runAction(ctx context.Context, a action.BackupItem, out *Result, host Host) error {
	name := a.Name()
	given := out.Object.decodedObject()
	answer, err := host.Execute(ctx, a, given, c.Backup)
	if answer.OperationID != "" { // whatever becomes of the object
		out.Problems = append(out.Problems, fmt.Errorf(
			"action %s: Execute: it began operation %q, which nothing waits for: an item that is stored again begins none", name, clipText(answer.OperationID)))
	}
	if err != nil {
		return err
	}
	out.Applied = append(out.Applied, name)
	if answer.Object == nil {
		return fmt.Errorf("action %s: Execute: no object came back", name)
	}
	if answer.Object != given {
		if err := out.takeAnswer(answer.Object); err != nil {
			return fmt.Errorf("action %s: Execute: %w", name, err)
		}
	}
	if out.Object.Meta.Annotations.Has(velerov1.AnnotationSkipFromBackup) {
		out.LeftOut = name
		return nil
	}
	must, err := out.mustInclude()
	if err != nil {
		return fmt.Errorf("action %s: Execute: %w", name, err)
	}
	if len(answer.Additional) == 0 {
		return nil
	}
	return host.Additional(ctx, name, answer.Additional, must)
}

// Execute calls the action; a panic is an error.
func Execute(ctx context.Context, a action.BackupItem, o *action.Object, b *action.Backup) (r action.BackupResult, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("action %s: Execute: panic: %v", a.Name(), p)
		}
	}()
	return a.Execute(ctx, o, b)
}

// clipText bounds a plugin's text in messages.
func clipText(text string) string { return text[:min(len(text), 256)] }
