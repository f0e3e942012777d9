package flight

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	"github.com/holdfast-io/holdfast/pkg/kube/objmeta"
	"github.com/holdfast-io/holdfast/pkg/spec/restoreorder"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/plan"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/object"

	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/volumes"
)

var accountsGVR = schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}

// Screen checks objects before they are changed. Safe for concurrent use.
type Screen struct {
	Plan    *plan.Plan
	Volumes *volumes.Decisions
	// Runs are the objects that are left out because they would run again.
	Runs   restoreorder.Runs
	Owners *Linker
	Loader *object.Loader
	// Server is the namespace of the server.
	Server string
}

// Skipped returns why the object stays out, nil when it does not.
func (s *Screen) Skipped(ctx context.Context, o *object.Object) *apply.Skip {
	kind := s.Plan.Kind(o.Node)
	if skip := s.skipSnapshot(o, kind.GroupResource()); skip != nil {
		return skip
	}
	if skip := apply.FindSkip(o.Body, kind.GroupResource()); skip != nil && !(skip.Ended && s.Runs.RunsJobs()) {
		return skip
	}
	if o.Target.Namespace == s.Server && holdsServerState(kind.String(), o) {
		return &apply.Skip{Reason: "it is Holdfast's own state, which a restore does not turn back"}
	}
	if s.Runs.Running == restoreorder.SkipJobs && s.isRunningJob(o) {
		return &apply.Skip{Reason: "the job ran when it was backed up, and the annotation " + holdfast.AnnotationRunningJobs + " of the restore says skip"}
	}
	if s.Runs.LeavesOut(kind.GroupResource()) {
		return &apply.Skip{Reason: "it would run again; the annotation " + holdfast.AnnotationRunAgain + " of a restore asks for it all the same", Report: true}
	}
	if owner := s.Owners.Remade(o); owner != "" {
		return &apply.Skip{Reason: owner + ", which is restored or left out, makes such objects itself", Report: true}
	}
	if kind.String() == "persistentvolumes" && s.Volumes.Reprovision(o.Target.Name) {
		return &apply.Skip{Reason: "its claim gets a new volume"}
	}
	if skip := s.skipManaged(ctx, o, kind); skip != nil {
		return skip
	}
	if skip := s.skipLock(ctx, o, kind); skip != nil {
		return skip
	}
	return s.skipToken(ctx, o, kind)
}

// skipLock keeps an object without content out that belongs to Pods alone, none of which comes back:
// operators take it for a lock that somebody holds, and Kubernetes would have deleted it.
func (s *Screen) skipLock(ctx context.Context, o *object.Object, kind *plan.Kind) *apply.Skip {
	if len(o.Owners) == 0 || !apply.HoldsNothing(o.Body, kind.String()) {
		return nil
	}
	name := ""
	for _, ref := range o.Owners {
		value, owner, ok := object.Reference(ref)
		if !ok || owner.Kind != "Pod" || owner.APIVersion != "v1" || s.comesBack(ctx, o, owner) {
			return nil
		}
		name = ReferenceName(value)
	}
	return &apply.Skip{Report: true, Reason: "it is a lock of " + name + ", which is neither restored nor in the cluster, so Kubernetes would have deleted it"}
}

// comesBack reports that a Pod is in the cluster still, or is one of those to restore.
func (s *Screen) comesBack(ctx context.Context, o *object.Object, pod objmeta.Owner) bool {
	node, ok := s.Owners.nodeWithUID(pod.UID)
	if !ok {
		return s.Owners.isOwnerLive(ctx, o.Target.Namespace, pod)
	}
	stored, err := s.Loader.Load(ctx, node)
	return err != nil || apply.FindSkip(stored.Body, s.Plan.Kind(node).GroupResource()) == nil
}

// skipToken keeps the token of a ServiceAccount out that neither comes with the restore nor is in the
// cluster: the token controller would delete the Secret. Every namespace has its "default".
func (s *Screen) skipToken(ctx context.Context, o *object.Object, kind *plan.Kind) *apply.Skip {
	if kind.String() != "secrets" {
		return nil
	}
	account := apply.TokenAccount(o.Body)
	if account == "" || account == "default" {
		return nil
	}
	if node, ok := s.Plan.Find("serviceaccounts", s.Plan.Source(o.Node), account); ok && s.Owners.Recorder.Concerns(node) {
		return nil
	}
	if !s.Owners.Namespaces.Created(o.Target.Namespace) {
		live, err := s.Owners.Existing.Get(ctx, apply.Target{GVR: accountsGVR, Namespace: o.Target.Namespace, Name: account})
		if live != nil || err != nil {
			return nil
		}
	}
	return &apply.Skip{Report: true, Reason: fmt.Sprintf("it holds the token of ServiceAccount %s/%s, which is neither part of the restore nor in the cluster, so Kubernetes would delete it; restore the account, too",
		o.Target.Namespace, account)}
}

// SuspendRunning has a Job that ran when it was backed up be created suspended, where the restore asks
// for that.
func (s *Screen) SuspendRunning(o *object.Object) {
	if s.Runs.Running != restoreorder.SuspendJobs || !s.isRunningJob(o) {
		return
	}
	o.Suspended = true
	object.MapAt(o.Body, "spec")["suspend"] = true
}

func (s *Screen) isRunningJob(o *object.Object) bool {
	return s.Plan.Kind(o.Node).String() == "jobs.batch" && apply.IsRunningJob(o.Body) && object.MapAt(o.Body, "spec") != nil
}

// Report reports what the object requests and this version does not do.
func (s *Screen) Report(e *outcome.Entry, o *object.Object) {
	if annotation := apply.FindUnsupported(o.Body); annotation != "" {
		e.Error("annotation " + annotation + " asks for what this version does not do; the object is restored without it")
	}
	switch s.Plan.Kind(o.Node).String() {
	case "persistentvolumeclaims":
		s.reportClaimData(e, o)
	case "pods":
		s.reportPodData(e, o)
	case "jobs.batch":
		if s.Runs.Running == restoreorder.SuspendJobs && s.isRunningJob(o) {
			e.Info("created suspended: the job ran when it was backed up, and the annotation " + holdfast.AnnotationRunningJobs + " of the restore says suspend")
		}
	}
}
