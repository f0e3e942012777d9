package apply

import (
	"context"
	"fmt"
	"reflect"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// maxGrantAttempts is how often accounts are tried to be added to an object that others change all the time.
const maxGrantAttempts = 20

// keepServices leaves the Services that the API server calls for a live object as they are, where the
// namespace mapping changed the stored ones: a clone takes no calls away from its original.
func (r *Request) keepServices(live map[string]any) {
	if r.MappedFrom == nil {
		return
	}
	resource := r.GVR.GroupResource().String()
	present := calledServices(live, resource)
	for name, service := range calledServices(r.Object, resource) {
		if now := present[name]; now != nil && r.MappedFrom(textOf(service, "namespace")) != "" {
			service["namespace"] = now["namespace"]
		}
	}
}

// isMapped reports that an entry of a list of accounts names a namespace that another one is mapped to.
func (r *Request) isMapped(entry any) bool {
	_, namespace := nameAccount(entry)
	return namespace != "" && r.MappedFrom(namespace) != ""
}

// mappedAccounts returns the accounts of mapped namespaces that the stored object grants something to, as
// people read them, without those of except.
func (r *Request) mappedAccounts(except map[string]any) (names []string) {
	if r.MappedFrom == nil || r.Taken {
		return nil
	}
	for _, key := range accountLists[r.GVR.GroupResource().String()] {
		for _, entry := range listAt(r.Object, key) {
			if r.isMapped(entry) && !containsEqual(listAt(except, key), entry) {
				name, _ := nameAccount(entry)
				names = append(names, name)
			}
		}
	}
	return names
}

// uniteAccounts returns base with the accounts of the live object and, where keep accepts them, of the
// stored one.
func (r *Request) uniteAccounts(base, live map[string]any, keep func(entry any) bool) map[string]any {
	out := cloneObject(base)
	for _, key := range accountLists[r.GVR.GroupResource().String()] {
		var more []any
		for _, entry := range listAt(r.Object, key) {
			if keep(entry) {
				more = append(more, entry)
			}
		}
		if all := unionLists(live[key], more); len(all) > 0 {
			out[key] = all
		}
	}
	return out
}

// grantMapped adds the accounts of mapped namespaces to a live object, whatever the policy, and removes
// none: those of the backup keep what they were granted. id is that of live.
func (c *Client) grantMapped(ctx context.Context, r *Request, live map[string]any, id Identity) Result {
	all, missing := r.mappedAccounts(nil), r.mappedAccounts(live)
	if !reflect.DeepEqual(live["roleRef"], r.Object["roleRef"]) {
		return Result{Action: Failed, UID: id.UID, Warning: r.refusalMessage(fmt.Sprintf(
			"exists already with %s, in the backup with %s: it does not bind %s; bind them by hand", nameRole(live), nameRole(r.Object), strings.Join(all, ", ")))}
	}
	everything := func(any) bool { return true }
	stored := r.uniteAccounts(r.storedObject(), live, everything)
	want := r.uniteAccounts(live, live, r.isMapped)
	differs := !r.Update && !reflect.DeepEqual(want, stored)
	switch {
	case r.Update && !reflect.DeepEqual(stored, live):
		want = r.uniteAccounts(r.wantedObject(), live, everything)
	case len(missing) > 0:
	case r.Intended == IntentUpdate: // an earlier holder added them
		return Result{Action: Updated, UID: id.UID, Warning: r.grantMessage(all, differs)}
	case differs:
		return Result{Action: Failed, UID: id.UID, Warning: r.refusalMessage("exists already and differs from the backup")}
	default:
		return c.leaveEqual(ctx, r, id.UID)
	}
	if err := r.recordIntent(ctx, IntentUpdate); err != nil {
		return failedResult(err)
	}
	memberObject(want, "metadata")["resourceVersion"] = id.Version // others may add accounts meanwhile
	patch, err := mergePatch(live, want)
	if err != nil {
		return failedResult(err)
	}
	_, err = c.sendPatch(ctx, r.Target, c.manager.managerForExisting(), patch)
	_, internal := Internal(err)
	switch {
	case apierrors.IsConflict(err) && r.regrants < maxGrantAttempts:
		r.regrants++
		return c.meetExisting(ctx, r)
	case internal:
		return failedResult(fmt.Errorf("update: %w", err))
	case err != nil:
		return Result{Action: Failed, UID: id.UID, Warning: r.refusalMessage(fmt.Sprintf("could not be given %s: %v", strings.Join(all, ", "), err))}
	}
	return Result{Action: Updated, UID: id.UID, Warning: r.grantMessage(missing, differs), Fields: c.plannedFields(patch)}
}

// grantMessage says which accounts were added to an object, and that it differs otherwise. Without any
// there is nothing to say.
func (r *Request) grantMessage(added []string, differs bool) string {
	if len(added) == 0 {
		return ""
	}
	message := fmt.Sprintf("%s %q exists already: added %s to its accounts, removed none", r.Kind, r.Name, strings.Join(added, ", "))
	if differs {
		message += "; it differs from the backup otherwise, and is left as it is"
	}
	return message
}

// nameRole names the role that a binding refers to.
func nameRole(binding map[string]any) string {
	ref := memberObject(binding, "roleRef")
	return textOf(ref, "kind") + " " + textOf(ref, "name")
}
