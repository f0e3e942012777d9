package apply

import (
	"context"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-io/holdfast/services/restore-runner/internal/reset"
)

// mergeAccount adds what the stored ServiceAccount has more than the live one, whatever the policy:
// every namespace has its "default" account before anything is restored into it. Values of the live
// one win over stored ones.
func (c *Client) mergeAccount(ctx context.Context, r *Request, live map[string]any, uid types.UID) Result {
	merged := clone(live)
	for _, key := range []string{"secrets", "imagePullSecrets"} {
		if list := union(live[key], r.Object[key]); len(list) > 0 {
			merged[key] = list
		}
	}
	meta, stored := member(merged, "metadata"), member(r.Object, "metadata")
	for _, key := range []string{"labels", "annotations"} {
		if all := overlay(member(stored, key), member(meta, key)); len(all) > 0 {
			meta[key] = all
		}
	}
	plain := clone(merged)
	reset.Comparable(plain)
	if reflect.DeepEqual(plain, live) {
		return c.equal(ctx, r, uid)
	}
	patch, err := mergePatch(live, merged)
	if err != nil {
		return failed(err)
	}
	if err := r.intend(ctx, IntentUpdate); err != nil {
		return failed(err)
	}
	if _, err := c.patch(ctx, r.Target, c.manager.existing(), patch); err != nil {
		if _, internal := Internal(err); internal {
			return failed(fmt.Errorf("merge: %w", err))
		}
		return Result{Action: Failed, UID: uid, Warning: r.refused("could not be merged: " + err.Error())}
	}
	return Result{Action: Updated, UID: uid}
}

func member(o map[string]any, key string) map[string]any {
	m, ok := o[key].(map[string]any)
	if !ok {
		return nil
	}
	return m
}

// union returns the elements of a and those of b that a lacks.
func union(a, b any) []any {
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
		if !contains(out, v) {
			out = append(out, v)
		}
	}
	return out
}

func contains(list []any, v any) bool {
	for _, e := range list {
		if reflect.DeepEqual(e, v) {
			return true
		}
	}
	return false
}

// overlay returns the members of both, those of top where both have one.
func overlay(bottom, top map[string]any) map[string]any {
	out := make(map[string]any, len(bottom)+len(top))
	for k, v := range bottom {
		out[k] = v
	}
	for k, v := range top {
		out[k] = v
	}
	return out
}
