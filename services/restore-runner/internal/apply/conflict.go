package apply

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/reset"
)

// meet decides about an object that exists already. maybe reports that this very call may have
// created it.
func (c *Client) meet(ctx context.Context, r *Request, raw []byte, maybe bool) Result {
	live, err := jsonlimit.UnmarshalObject(raw)
	if err != nil {
		return failed(fmt.Errorf("decode the existing object: %w", err))
	}
	id, err := identify(raw)
	if err != nil {
		return failed(err)
	}
	uid := id.UID
	meta, ok := live["metadata"].(map[string]any)
	if !ok {
		return failed(fmt.Errorf("the existing object has no metadata"))
	}
	created := !r.Taken && r.Intended == "" && c.manager.Made(meta)
	deleting := meta["deletionTimestamp"] != nil
	switch {
	case created && r.Resumed && deleting:
		return Result{Action: Created} // deleted by another client after it was restored; it is no owner
	case created && (r.Resumed || maybe && !deleting):
		return Result{Action: Created, UID: uid, Fresh: true}
	}
	r.normalize(live)
	equal := reflect.DeepEqual(live, r.stored())
	switch {
	case maybe && equal && !deleting && !r.Taken:
		return Result{Action: Created, UID: uid, Fresh: true}
	case deleting && r.NoCreate:
		return failed(ErrGoing)
	case deleting:
		return failed(ErrTerminating)
	case equal:
		return c.equal(ctx, r, uid)
	case r.GVR.Group == "" && r.GVR.Resource == "serviceaccounts":
		return c.mergeAccount(ctx, r, live, uid)
	case r.Update && !r.Taken:
		return c.update(ctx, r, live, uid)
	}
	return Result{Action: Failed, UID: uid, Warning: r.refused("exists already and differs from the backup")}
}

// normalize makes a live object comparable with stored.
func (r *Request) normalize(live map[string]any) {
	r.Normalize(live)
	reset.Comparable(live)
}

// stored is Object without what this restore added to it.
func (r *Request) stored() map[string]any {
	out := clone(r.Object)
	delete(member(out, "metadata"), "ownerReferences")
	reset.Comparable(out)
	return out
}

// refused is the message of an object left as it is; it begins as Velero's, for tools that match
// it.
func (r *Request) refused(why string) string {
	return fmt.Sprintf("could not restore, %s %q %s", r.Kind, r.Name, why)
}

func clone(obj map[string]any) map[string]any {
	out := make(map[string]any, len(obj))
	for k, v := range obj {
		out[k] = cloneValue(v)
	}
	return out
}

func cloneValue(v any) any {
	switch v := v.(type) {
	case map[string]any:
		return clone(v)
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = cloneValue(v[i])
		}
		return out
	}
	return v
}

// intend makes an intent durable before it is carried out.
func (r *Request) intend(ctx context.Context, intent Intent) error {
	if r.Intend == nil {
		return nil
	}
	return r.Intend(ctx, intent)
}

// equal leaves the object; policy update marks it as this restore's.
func (c *Client) equal(ctx context.Context, r *Request, uid types.UID) Result {
	result := Result{Action: Skipped, UID: uid}
	switch {
	case r.Intended == IntentUpdate:
		result.Action = Updated // by an earlier holder
	case r.Update:
		if err := r.intend(ctx, IntentLabel); err != nil {
			return failed(err)
		}
		if err := c.relabel(ctx, r); err != nil {
			result.Warning = r.refused("is as in the backup but could not be labelled: " + err.Error())
		}
	}
	return result
}

// relabel writes the restore's labels onto the live object.
func (c *Client) relabel(ctx context.Context, r *Request) error {
	_, err := c.encode(ctx, r.Target, c.manager.existing(), map[string]any{"metadata": map[string]any{"labels": r.restoreLabels()}})
	return err
}

func (r *Request) restoreLabels() map[string]any {
	meta, ok := r.Object["metadata"].(map[string]any)
	if !ok {
		return nil
	}
	labels, ok := meta["labels"].(map[string]any)
	if !ok {
		return nil
	}
	return reset.RestoreLabels(labels)
}

// update gives the live object its state in the backup, by a merge patch.
func (c *Client) update(ctx context.Context, r *Request, live map[string]any, uid types.UID) Result {
	patch, err := mergePatch(live, r.Object)
	if err != nil {
		return failed(err)
	}
	if err := r.intend(ctx, IntentUpdate); err != nil {
		return failed(err)
	}
	if _, err := c.patch(ctx, r.Target, c.manager.existing(), patch); err != nil {
		if _, internal := Internal(err); internal {
			return failed(fmt.Errorf("update: %w", err))
		}
		warning := r.refused("could not be updated: " + err.Error())
		if err := c.relabel(ctx, r); err != nil {
			warning += "; nor be labelled: " + err.Error()
		}
		return Result{Action: Failed, UID: uid, Warning: warning}
	}
	return Result{Action: Updated, UID: uid}
}

// mergePatch is what turns the normalized live object into want. Owner references are
// left out: package relink sets them.
func mergePatch(live, want map[string]any) ([]byte, error) {
	want = clone(want)
	if meta, ok := want["metadata"].(map[string]any); ok {
		delete(meta, "ownerReferences")
	}
	from, err := json.Marshal(live)
	if err != nil {
		return nil, fmt.Errorf("encode the existing object: %w", err)
	}
	to, err := json.Marshal(want)
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	patch, err := jsonpatch.CreateMergePatch(from, to)
	if err != nil {
		return nil, fmt.Errorf("compare with the existing object: %w", err)
	}
	return patch, nil
}
