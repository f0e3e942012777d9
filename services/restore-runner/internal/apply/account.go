package apply

import (
	"context"
	"fmt"
	"reflect"
)

// mergeAccount adds what the stored ServiceAccount has more than the live one, whatever the policy:
// every namespace has its "default" account before anything is restored into it. Values of the live
// one win over stored ones.
func (c *Client) mergeAccount(ctx context.Context, r *Request, existing *existingObject) Result {
	live, uid := existing.normalized, existing.uid
	merged := cloneObject(live)
	for _, key := range []string{"secrets", "imagePullSecrets"} {
		if list := unionLists(live[key], r.Object[key]); len(list) > 0 {
			merged[key] = list
		}
	}
	meta, stored := memberObject(merged, "metadata"), memberObject(r.Object, "metadata")
	for _, key := range []string{"labels", "annotations"} {
		if all := overlayMembers(memberObject(stored, key), memberObject(meta, key)); len(all) > 0 {
			meta[key] = all
		}
	}
	warning := r.mergeAutomount(merged, live)
	plain := cloneObject(merged)
	MakeComparable(plain)
	if reflect.DeepEqual(plain, live) {
		result := c.leaveEqual(ctx, r, uid)
		if warning != "" {
			result.Warning = warning
		}
		return result
	}
	u, err := existing.newUpdate(merged)
	if err != nil {
		return failedResult(err)
	}
	if err := r.recordIntent(ctx, IntentUpdate); err != nil {
		return failedResult(err)
	}
	if err := c.sendUpdate(ctx, r, u); err != nil {
		if _, internal := Internal(err); internal {
			return failedResult(fmt.Errorf("merge: %w", err))
		}
		return Result{Action: Failed, UID: uid, Warning: r.refusalMessage("could not be merged: " + err.Error())}
	}
	return Result{Action: Updated, UID: uid, Warning: warning, Fields: u.fields}
}

// mergeAutomount gives the merged account the stored automountServiceAccountToken where policy update asks for
// it, or the live account is as the controller made it. Otherwise it returns a warning where they differ.
func (r *Request) mergeAutomount(merged, live object) (warning string) {
	const key = "automountServiceAccountToken"
	meta := childObject(live, "metadata")
	untouched := reflect.DeepEqual(live, object{"apiVersion": live["apiVersion"], "kind": live["kind"], "metadata": object{"name": "default", "namespace": meta["namespace"]}})
	if r.Update && !r.Taken || untouched {
		followField(merged, r.Object, key)
	}
	if reflect.DeepEqual(merged[key], r.Object[key]) {
		return ""
	}
	return r.refusalMessage("exists already and differs from the backup in " + key + ", which stays as it is")
}

func memberObject(o map[string]any, key string) map[string]any {
	m, ok := o[key].(map[string]any)
	if !ok {
		return nil
	}
	return m
}

// unionLists returns the elements of a and those of b that a lacks.
func unionLists(a, b any) []any {
	first, isList := a.([]any)
	if !isList {
		first = nil
	}
	out := append([]any(nil), first...)
	second, isList := b.([]any)
	if !isList {
		return out
	}
	for _, v := range second {
		if !containsEqual(out, v) {
			out = append(out, v)
		}
	}
	return out
}

func containsEqual(list []any, v any) bool {
	for _, e := range list {
		if reflect.DeepEqual(e, v) {
			return true
		}
	}
	return false
}

// overlayMembers returns the members of both, those of top where both have one.
func overlayMembers(bottom, top map[string]any) map[string]any {
	out := make(map[string]any, len(bottom)+len(top))
	for k, v := range bottom {
		out[k] = v
	}
	for k, v := range top {
		out[k] = v
	}
	return out
}
