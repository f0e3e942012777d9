package flight

import (
	"context"
	"fmt"
	"slices"

	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/plan"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/object"
)

// Creator creates the objects of a restore. Safe for concurrent use.
type Creator struct {
	Plan     *plan.Plan
	Recorder *outcome.Recorder
	History  *outcome.History
	Finisher *Finisher
	Existing *object.LiveReader
	Names    *object.Names
	// PreserveNodePorts and Update are fields of the spec of the restore.
	PreserveNodePorts, Update bool
	// UpdateNamed has objects updated that the restore names.
	UpdateNamed bool
	// Injections name what admission adds to Pods.
	Injections apply.InjectionRules
	// PreserveAddresses is that of the request.
	PreserveAddresses bool
}

// Request is what brings an object of a kind into the cluster. What comes with accounts alone is no object of the
// existing-resource policy, and a live ClusterRole of other rules is no matter of one namespace.
func (c *Creator) Request(o *object.Object, kind string) apply.Request {
	companion := c.Plan.Companion(o.Node)
	return apply.Request{
		Target: o.Target, Kind: kind, Object: o.Body, Status: o.Status, NoCreate: o.Exists, Converted: o.Stored != "", Injections: c.Injections,
		Normalize:  c.normalizeLive(o),
		MappedFrom: c.Plan.MappedFrom, Update: (c.Update || c.UpdateNamed && c.Plan.Named(o.Node)) && !o.Lock && !companion, CreateOnly: companion && kind == "ClusterRole",
		Resumed: c.History.Resumed || o.Tried, Intended: c.History.Intents[o.Node],
		Intend: func(ctx context.Context, intent apply.Intent) error {
			c.Recorder.Intend(o.Node, intent)
			err := c.Recorder.Sync(ctx)
			failpoint.Hit("restore-runner/intended")
			return err
		},
	}
}

// normalizeLive makes a live object comparable with the stored one. What the mapping and the
// decisions about volumes changed in the stored one is in the live one already.
func (c *Creator) normalizeLive(o *object.Object) func(map[string]any) {
	spec, ok := o.Body["spec"].(map[string]any)
	unbound := !ok || spec["volumeName"] == nil
	return func(live map[string]any) {
		apply.NormalizeObject(live, o.Kind.GroupResource(), &apply.ResetOptions{
			PreserveNodePorts: c.PreserveNodePorts, PreserveAddresses: c.PreserveAddresses,
			Reprovision: func(string) bool { return unbound },
		})
		if o.Lock {
			copyState(live, o.Body)
		}
		if live := object.MapAt(live, "spec"); o.Suspended && live != nil {
			live["suspend"] = spec["suspend"]
		}
	}
}

// Complete notes what came of a request, and completes the object. False when it has its outcome
// already, or none because ctx ended: the result of a request that was cut off is unknown.
func (c *Creator) Complete(ctx context.Context, e *outcome.Entry, o *object.Object, result *apply.Result) bool {
	e.Changes(result.Fields)
	if result.Err != nil {
		c.Finisher.Fail(ctx, e, o.Node, result.Err)
		return false
	}
	if result.Warning != "" {
		if ctx.Err() != nil {
			return false
		}
		e.Warn(result.Warning)
	}
	if !result.Fresh {
		return true
	}
	for _, moved := range apply.RepointedServices(o.Body, o.Kind.String(), c.Plan.MappedFrom) {
		e.Warn(fmt.Sprintf("the API server calls Service %s for it, %s in the backup: its certificate must name the new Service, else the calls fail", moved[1], moved[0]))
	}
	return c.completeFields(ctx, e, o, result)
}

// completeFields writes managed fields that must come back. The UID makes sure that it still is the
// object of this restore. False when ctx ended before they were written.
func (c *Creator) completeFields(ctx context.Context, e *outcome.Entry, o *object.Object, result *apply.Result) bool {
	if len(o.Fields) == 0 {
		return true
	}
	// Without the mark a successor would not recognize the object, should its outcome not be
	// recorded any more.
	labels := apply.RestoreLabels(object.MapAt(o.Metadata(), "labels"))
	if len(labels) == 0 {
		labels = map[string]any{apply.NamespaceLabel: ""} // which a Namespace has instead
	}
	mark := c.Existing.Manager.Mark(object.TextAt(o.Body, "apiVersion"), labels)
	patch := map[string]any{"metadata": map[string]any{"uid": string(result.UID), "managedFields": append(slices.Clone(o.Fields), mark)}}
	now, err := c.Existing.Client.Patch(ctx, c.Names.Target(o.Node), patch)
	if result.Version != "" { // else it is not known what else it has
		result.Version = now.Version
	}
	if err == nil {
		return true
	}
	e.Error(fmt.Sprintf("metadata.managedFields could not be added: %v", err))
	return ctx.Err() == nil
}

// copyState makes a live lock equal to the stored one in what its holders write.
func copyState(live, stored map[string]any) {
	if kind := object.TextAt(live, "kind"); kind == "Lease" {
		live["spec"] = stored["spec"]
	}
	from, to := object.MapAt(stored, "metadata"), object.MapAt(live, "metadata")
	delete(to, "annotations")
	if annotations, has := from["annotations"]; has && to != nil {
		to["annotations"] = annotations
	}
}
