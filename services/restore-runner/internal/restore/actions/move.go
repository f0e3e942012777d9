package actions

import (
	"context"
	"fmt"
	"strings"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/plan"
)

// requiredName is the name that actions have to leave an object, "" where they may change it: definitions and volumes are
// found by their names in the backup.
func (r *objectRun) requiredName() string {
	p, node := r.chains.Plan, r.o.Node
	if p.Class(node) != plan.Other || p.Kind(node).String() == "persistentvolumes" {
		return r.o.Target.Name
	}
	return ""
}

// moveObject makes what the actions left the object, and gives it the kind, the name and the namespace that it has
// there.
func (r *objectRun) moveObject(ctx context.Context) error {
	id, err := r.object.Identity()
	if err == nil {
		r.o.Kind, err = r.chains.Loader.KindOf(r.o, r.object)
	}
	if err != nil {
		return err
	}
	if r.requiredName() != "" {
		return r.chains.Loader.Replace(ctx, r.o, r.object)
	}
	to, elsewhere, err := r.findPlace(id)
	if err != nil {
		return err
	}
	r.o.Moved = &to
	if err := r.chains.Loader.Replace(ctx, r.o, r.object); err != nil {
		return err
	}
	planned := r.chains.Names.Planned(r.o.Node)
	if r.o.Target.GVR != planned.GVR {
		to.APIVersion, to.Kind, to.Resource = r.o.Target.GVR.GroupVersion().String(), r.o.Kind.GVK.Kind, r.o.Target.GVR.Resource
	}
	r.noteMove(to, planned, elsewhere)
	return nil
}

// findPlace returns the namespace and the name that the actions gave the object. Actions see the namespaces of the
// backup. elsewhere is one to which the restore restores nothing, which is not reserved for it and not followed.
func (r *objectRun) findPlace(id action.Identity) (to outcome.Moved, elsewhere string, err error) {
	p, node, kind := r.chains.Plan, r.o.Node, r.o.Kind
	source := p.Source(node)
	to = outcome.Moved{Namespace: p.Target(node), Name: id.Name}
	switch {
	case !kind.Namespaced:
		source, to.Namespace = "", ""
	case id.Namespace != "" && id.Namespace != source && id.Namespace != to.Namespace:
		if mapped := p.MapNamespace(id.Namespace); r.chains.targets[mapped] {
			source, to.Namespace = id.Namespace, mapped
		} else {
			elsewhere = id.Namespace
		}
	}
	if kind.Namespaced && to.Namespace == "" {
		return to, "", fmt.Errorf("actions made it a %s, which needs a namespace, and %q is none to which this restore restores", kind.GVK.Kind, id.Namespace)
	}
	if other, taken := p.Find(kind.String(), source, to.Name); taken && other != node && r.chains.Recorder.Concerns(other) {
		return to, "", fmt.Errorf("actions gave it the place of another object of the restore, %s/%s", to.Namespace, to.Name)
	}
	return to, elsewhere, nil
}

// noteMove records what differs from the plan, and says so once.
func (r *objectRun) noteMove(to outcome.Moved, planned apply.Target, elsewhere string) {
	moved := to != outcome.Moved{Namespace: planned.Namespace, Name: planned.Name}
	if moved {
		r.state.Entry.Moved(to)
	}
	if !moved && elsewhere == "" || !r.chains.Names.Move(r.o.Node, to) {
		return // nothing, or it is said already
	}
	if to.Kind != "" {
		gvk := r.chains.Plan.Kind(r.o.Node).GVK
		r.state.Entry.Info(fmt.Sprintf("restored as %s of %s: actions made it that of a %s of %s", to.Kind, to.APIVersion, gvk.Kind, gvk.GroupVersion()))
	}
	if elsewhere != "" {
		r.state.Entry.Warn(fmt.Sprintf("actions put it into namespace %q, to which this restore restores nothing: it is restored to %q", elsewhere, to.Namespace))
	} else if to.Namespace != planned.Namespace || to.Name != planned.Name {
		r.state.Entry.Info(fmt.Sprintf("restored as %s: actions gave it that place", strings.TrimPrefix(to.Namespace+"/"+to.Name, "/")))
	}
}
