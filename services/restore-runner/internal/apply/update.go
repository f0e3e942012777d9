package apply

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit"
)

// updateTries bounds how often an update is sent without what the API server refused of it before.
const updateTries = 4

// existingObject is an object that is there.
type existingObject struct {
	raw []byte
	// normalized is the object after the resets.
	normalized map[string]any
	uid        types.UID
}

// objectUpdate is what an existing object is to become.
type objectUpdate struct {
	live, want map[string]any
	// kept are the fields, with the reason, that stay as they are in the cluster.
	kept []string
	// fields are the paths that the last patch changed.
	fields []string
	// reduced reports that of the spec only the mutable fields of the kind are left to change.
	reduced bool
}

// newUpdate returns the update of the object to want, which went through the resets.
func (o *existingObject) newUpdate(want map[string]any) (*objectUpdate, error) {
	live, err := jsonlimit.UnmarshalObject(o.raw)
	if err != nil {
		return nil, fmt.Errorf("decode the existing object: %w", err)
	}
	return &objectUpdate{live: live, want: carryMembers(live, o.normalized, want)}, nil
}

// isDefaulted reports that an object has only fields more than the stored one, which the API server adds by
// itself: a dry run of the update changes nothing.
func (c *Client) isDefaulted(ctx context.Context, r *Request, existing *existingObject, stored map[string]any) bool {
	if !reflect.DeepEqual(existing.normalized["metadata"], stored["metadata"]) || !equality.Semantic.DeepDerivative(stored, existing.normalized) {
		return false
	}
	u, err := existing.newUpdate(stored)
	var patch, raw []byte
	if err == nil {
		patch, err = mergePatch(u.live, u.want)
	}
	if err == nil {
		raw, _, err = c.sendWithRetry(ctx, confirmFree, func() *rest.Request { return c.newPatch(r.Target, patch).Param("dryRun", metav1.DryRunAll) })
	}
	after, decodeErr := jsonlimit.UnmarshalObject(raw)
	if err != nil || decodeErr != nil {
		return false
	}
	r.normalizeLive(after)
	return reflect.DeepEqual(after, existing.normalized)
}

// updateExisting gives the live object its state in the backup, by a merge patch. Fields that the API
// server refuses to change stay as they are.
func (c *Client) updateExisting(ctx context.Context, r *Request, existing *existingObject) Result {
	u, err := existing.newUpdate(r.wantedObject())
	if err != nil {
		return failedResult(err)
	}
	if err := r.recordIntent(ctx, IntentUpdate); err != nil {
		return failedResult(err)
	}
	for try := 1; try == 1 || !u.isUpToDate(); try++ {
		err := c.sendUpdate(ctx, r, u)
		if err == nil {
			return u.finishUpdate(r, existing.uid, "")
		}
		if _, internal := Internal(err); internal {
			return failedResult(fmt.Errorf("update: %w", err))
		}
		if try == updateTries || !u.keepRefused(r, err) {
			u.kept = nil
			result := u.finishUpdate(r, existing.uid, "could not be updated: "+err.Error()+c.labelOnly(ctx, r))
			result.Refusal = err
			return result
		}
		failpoint.Hit("restore-runner/update-refused")
	}
	return u.finishUpdate(r, existing.uid, c.labelOnly(ctx, r))
}

// labelOnly labels an object that is not updated otherwise, and returns what to add to a message.
func (c *Client) labelOnly(ctx context.Context, r *Request) string {
	if err := c.writeLabels(ctx, r); err != nil {
		return "; nor be labelled: " + err.Error()
	}
	return ""
}

// finishUpdate returns what became of an update: an object of which a field is kept is not as in the backup,
// whether or not others were changed, also by an earlier holder.
func (u *objectUpdate) finishUpdate(r *Request, uid types.UID, problem string) Result {
	failpoint.Hit("restore-runner/updated")
	if len(u.kept) > 0 {
		problem = "could not be updated in what the API server refuses to change: " + strings.Join(u.kept, "; ") + problem
	}
	if problem == "" {
		return Result{Action: Updated, UID: uid, Fields: u.fields}
	}
	return Result{Action: Failed, UID: uid, Fields: u.fields, Warning: r.refusalMessage(problem)}
}

// wantedObject is Object as an existing one is to become. Owner references, which package flight sets, and the status,
// which is what became of the live object, are left out.
func (r *Request) wantedObject() map[string]any {
	want := cloneObject(r.Object)
	delete(memberObject(want, "metadata"), "ownerReferences")
	dropTemplateOwners(want)
	delete(want, "status")
	return want
}

// sendUpdate sends the difference as a merge patch.
func (c *Client) sendUpdate(ctx context.Context, r *Request, u *objectUpdate) error {
	patch, err := mergePatch(u.live, u.want)
	if err != nil {
		return err
	}
	u.fields = c.plannedFields(patch)
	_, err = c.sendPatch(ctx, r.Target, c.manager.managerForExisting(), patch)
	return err
}

// mergePatch is what turns live into want.
func mergePatch(live, want map[string]any) ([]byte, error) {
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

// mutableSpec are the fields of a spec that can be changed, of kinds that say so for the spec as a whole. The second
// part of a path is a field of each element of a list.
var mutableSpec = map[string][]string{
	"pods":                   {"containers.image", "initContainers.image", "activeDeadlineSeconds"},
	"persistentvolumeclaims": {"resources", "volumeAttributesClassName"},
	"statefulsets.apps": {"replicas", "ordinals", "template", "updateStrategy", "revisionHistoryLimit", "persistentVolumeClaimRetentionPolicy",
		"minReadySeconds"},
}

// keepRefused keeps the live values of the fields that the API server refuses to change. False when the
// refusal names none.
func (u *objectUpdate) keepRefused(r *Request, err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	progress := false
	for _, cause := range status.Status().Details.Causes {
		if u.keepField(r, cause.Field) {
			progress = true
			reason, _, _ := strings.Cut(cause.Message, "\n") // a Pod's has the whole difference behind it
			u.kept = append(u.kept, cause.Field+": "+reason)
		}
	}
	return progress
}

// keepField keeps the live value of a field; false when that is what it has already.
func (u *objectUpdate) keepField(r *Request, field string) bool {
	path, _, _ := strings.Cut(field, "[")
	if mutable := mutableSpec[r.GVR.GroupResource().String()]; !u.reduced && coversAny(path, mutable) {
		u.reduced = true
		u.want["spec"] = reduceSpec(memberObject(u.live, "spec"), memberObject(u.want, "spec"), mutable)
		return true
	}
	parts := strings.Split(path, ".")
	live, want := u.live, u.want
	for len(parts) > 1 && memberObject(live, parts[0]) != nil && memberObject(want, parts[0]) != nil {
		if _, known := memberObject(live, parts[0])[parts[1]]; !known && memberObject(want, parts[0])[parts[1]] == nil {
			break // the API server names what is no field
		}
		live, want, parts = memberObject(live, parts[0]), memberObject(want, parts[0]), parts[1:]
	}
	value, there := live[parts[0]]
	if reflect.DeepEqual(value, want[parts[0]]) {
		return false
	}
	if delete(want, parts[0]); there {
		want[parts[0]] = value
	}
	return true
}

// coversAny reports that a field of the object is the spec, or holds one of the paths in it.
func coversAny(field string, paths []string) bool {
	for _, path := range paths {
		if field == "spec" || strings.HasPrefix("spec."+path, field+".") {
			return true
		}
	}
	return false
}

// reduceSpec returns the live spec with the mutable fields of want.
func reduceSpec(live, want object, mutable []string) object {
	out := cloneObject(live)
	for _, path := range mutable {
		name, field, inList := strings.Cut(path, ".")
		if !inList {
			if delete(out, name); want[name] != nil {
				out[name] = want[name]
			}
			continue
		}
		for _, element := range objectList(out, name) {
			for _, wanted := range objectList(want, name) {
				if value := wanted[field]; wanted["name"] == element["name"] && value != nil {
					element[field] = value
				}
			}
		}
	}
	return out
}

// isUpToDate reports that nothing is left to change but the labels of the restore.
func (u *objectUpdate) isUpToDate() bool {
	live, want := cloneObject(u.live), cloneObject(u.want)
	MakeComparable(live)
	MakeComparable(want)
	return reflect.DeepEqual(live, want)
}
