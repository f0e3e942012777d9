package apply

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit"
)

// resolveExisting decides about an object that exists already. maybe reports that this very call may have
// created it.
func (c *Client) resolveExisting(ctx context.Context, r *Request, raw []byte, maybe bool) Result {
	result := c.compareExisting(ctx, r, raw, maybe)
	if c.dry != nil && errors.Is(result.Err, ErrTerminating) {
		result = c.dry.plannedResult(r.Target, "waits until one of that name, which is being deleted, is gone")
	}
	result.Live = raw
	return result
}

func (c *Client) compareExisting(ctx context.Context, r *Request, raw []byte, maybe bool) Result {
	live, err := jsonlimit.UnmarshalObject(raw)
	if err != nil {
		return failedResult(fmt.Errorf("decode the existing object: %w", err))
	}
	id, err := decodeIdentity(raw)
	if err != nil {
		return failedResult(err)
	}
	uid := id.UID
	meta, ok := live["metadata"].(map[string]any)
	if !ok {
		return failedResult(fmt.Errorf("the existing object has no metadata"))
	}
	created := !r.Taken && r.Intended == "" && c.manager.IsCreatedByRestore(meta)
	deleting := meta["deletionTimestamp"] != nil
	switch {
	case created && r.Resumed && deleting:
		return Result{Action: Created} // deleted by another client after it was restored; it is no owner
	case created && (r.Resumed || maybe && !deleting):
		r.noteLeftOut(live)
		return Result{Action: Created, UID: uid, Fresh: true, Warning: r.without}
	case r.CreateOnly && deleting:
		return failedResult(ErrTerminating)
	case r.CreateOnly:
		return Result{Action: Skipped, UID: uid}
	}
	assigned := r.assignedAddresses(meta)
	r.normalizeLive(live)
	r.keepServices(live)
	r.settleAnswers(live, assigned)
	existing := &existingObject{raw, live, uid}
	stored := r.storedObject()
	equal := reflect.DeepEqual(live, stored) || !deleting && c.isDefaulted(ctx, r, existing, stored)
	switch {
	case maybe && equal && !deleting && !r.Taken: // its answer was lost, what it was created without is not
		return Result{Action: Created, UID: uid, Fresh: true, Warning: r.without}
	case deleting && r.NoCreate:
		return failedResult(ErrGoing)
	case deleting:
		return failedResult(ErrTerminating)
	case equal:
		return c.leaveEqual(ctx, r, uid)
	case r.GVR.Group == "" && r.GVR.Resource == "serviceaccounts":
		return c.mergeAccount(ctx, r, existing)
	case len(r.mappedAccounts(nil)) > 0:
		return c.grantMapped(ctx, r, live, id)
	case r.Update && !r.Taken:
		return c.updateExisting(ctx, r, existing)
	}
	result := Result{Action: Failed, UID: uid, Warning: r.refusalMessage("exists already and differs from the backup")}
	if c.dry != nil {
		result.Fields = differingFields(live, stored)
	}
	return result
}

// normalizeLive makes a live object comparable with stored.
func (r *Request) normalizeLive(live map[string]any) {
	r.Normalize(live)
	MakeComparable(live)
}

// storedObject is Object without what this restore added to it.
func (r *Request) storedObject() map[string]any {
	out := r.wantedObject()
	MakeComparable(out)
	return out
}

// refusalMessage is the message of an object left as it is; it begins as Velero's, for tools that match
// it.
func (r *Request) refusalMessage(why string) string {
	return fmt.Sprintf("could not restore, %s %q %s", r.Kind, r.Name, why)
}

func cloneObject(obj map[string]any) map[string]any {
	out := make(map[string]any, len(obj))
	for k, v := range obj {
		out[k] = cloneValue(v)
	}
	return out
}

func cloneValue(v any) any {
	switch v := v.(type) {
	case map[string]any:
		return cloneObject(v)
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = cloneValue(v[i])
		}
		return out
	}
	return v
}

// recordIntent makes an intent durable before it is carried out.
func (r *Request) recordIntent(ctx context.Context, intent Intent) error {
	if r.Intend == nil {
		return nil
	}
	return r.Intend(ctx, intent)
}

// leaveEqual leaves the object; policy update marks it as this restore's.
func (c *Client) leaveEqual(ctx context.Context, r *Request, uid types.UID) Result {
	result := Result{Action: Skipped, UID: uid}
	switch {
	case r.Intended == IntentUpdate:
		result.Action = Updated // by an earlier holder
	case r.Update && len(r.restoreLabels()) > 0:
		if err := r.recordIntent(ctx, IntentLabel); err != nil {
			return failedResult(err)
		}
		result.Fields = c.plannedFields([]byte(`{"metadata":{"labels":"the restore's"}}`))
		if err := c.writeLabels(ctx, r); err != nil {
			result.Warning = r.refusalMessage("is as in the backup but could not be labelled: " + err.Error())
		}
	}
	return result
}

// writeLabels writes the restore's labels onto the live object. Namespaces have none.
func (c *Client) writeLabels(ctx context.Context, r *Request) error {
	if len(r.restoreLabels()) == 0 {
		return nil
	}
	_, err := c.patchEncoded(ctx, r.Target, c.manager.managerForExisting(), map[string]any{"metadata": map[string]any{"labels": r.restoreLabels()}})
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
	return RestoreLabels(labels)
}
