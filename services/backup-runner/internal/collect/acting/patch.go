package acting

import (
	"context"
	"encoding/json"
	"fmt"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
)

// repeatChanges makes the changes once more that the call of an action made to an object before the
// operations of the backup, now that they have ended. The call itself is not made again.
func (t *objectTurn) repeatChanges(ctx context.Context, a action.BackupItem, o *action.Object) (action.BackupResult, error) {
	unchanged := action.BackupResult{Object: o}
	call := checkpoint.Call{Action: a.Name(), Object: recordObject(&t.subject.SpooledItem)}
	record, _ := t.actor.pool.Past.Begun(&call)
	if record == "" {
		return unchanged, nil
	}
	out, err := t.actor.pool.outcomeIn(ctx, record, &call)
	if err != nil || out == nil || len(out.Patch) == 0 {
		return unchanged, err
	}
	current, err := o.JSON()
	if err != nil {
		return unchanged, err
	}
	changed, err := jsonpatch.MergePatch(current, out.Patch)
	if err != nil {
		return unchanged, fmt.Errorf("action %s: what it changed before the operations: %w", a.Name(), err)
	}
	return action.BackupResult{Object: action.FromJSON(changed)}, nil
}

// patchOf is what a call changed about an object; nil for nothing.
func patchOf(call *checkpoint.Call, given, answer *action.Object) ([]byte, error) {
	if answer == nil || answer == given {
		return nil, nil
	}
	before, err := given.Content()
	if err != nil {
		return nil, err
	}
	after, err := answer.Content()
	if err != nil {
		return nil, fmt.Errorf("action %s: Execute: %w", call.Action, err)
	}
	changes := mergePatchBetween(before, after)
	if len(changes) == 0 {
		return nil, nil
	}
	return json.Marshal(changes)
}

// mergePatchBetween returns the JSON merge patch (RFC 7386) that makes after of before. A null in after is
// one that the patch removes.
func mergePatchBetween(before, after map[string]any) map[string]any {
	patch := map[string]any{}
	for name := range before {
		if _, kept := after[name]; !kept {
			patch[name] = nil
		}
	}
	for name, value := range after {
		old, had := before[name]
		was, is := asMap(old), asMap(value)
		switch {
		case was != nil && is != nil:
			if changes := mergePatchBetween(was, is); len(changes) > 0 {
				patch[name] = changes
			}
		case !had || !equality.Semantic.DeepEqual(old, value):
			patch[name] = value
		}
	}
	return patch
}

func asMap(value any) map[string]any {
	m, _ := value.(map[string]any)
	return m
}
