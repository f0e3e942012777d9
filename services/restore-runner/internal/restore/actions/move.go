package actions

import (
	"fmt"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/plan"
)

// checkResult refuses what an action made of the object if it is of another kind, or has another name and is of a kind
// that others find by its name. by names the action.
func (r *objectRun) checkResult(by string, changed *action.Object) error {
	p, name := r.chains.Plan, ""
	if p.Class(r.o.Node) != plan.Other || p.Kind(r.o.Node).String() == "persistentvolumes" {
		name = r.o.Target.Name
	}
	if err := r.chains.Loader.Check(r.o, by, changed, name); err != nil {
		return err
	}
	before, err := r.object.Identity()
	if err != nil {
		return err
	}
	id, err := changed.Identity()
	if err == nil && id.Namespace != before.Namespace && r.namespaceFor(id) == "" && r.o.Target.Namespace != "" {
		r.state.Entry.Warn(fmt.Sprintf("%s: put it into namespace %q, to which this restore restores nothing: it is restored to %q", by, id.Namespace, p.Target(r.o.Node)))
	}
	return err
}

// namespaceFor returns the target for an object that an action returned, "" where it is none of the restore. Actions see
// the namespaces of the backup.
func (r *objectRun) namespaceFor(id action.Identity) string {
	p, node := r.chains.Plan, r.o.Node
	to := p.MapNamespace(id.Namespace)
	switch {
	case id.Namespace == "", id.Namespace == p.Source(node), id.Namespace == p.Target(node):
		return p.Target(node)
	case r.chains.targets[to]:
		return to
	}
	return ""
}

// moveObject gives the object the name and the namespace that the actions left it with.
func (r *objectRun) moveObject() error {
	id, err := r.object.Identity()
	if err != nil || id.Name == "" {
		return err
	}
	p, node := r.chains.Plan, r.o.Node
	to := outcome.Moved{Namespace: r.namespaceFor(id), Name: id.Name}
	if to.Namespace == "" {
		to.Namespace = p.Target(node)
	}
	if to.Namespace == p.Target(node) && to.Name == p.Name(node) || p.Class(node) != plan.Other || p.Kind(node).String() == "persistentvolumes" {
		return nil
	}
	source := p.Source(node)
	if to.Namespace != p.Target(node) {
		source = id.Namespace
	}
	if other, taken := p.Find(p.Kind(node).String(), source, to.Name); taken && r.chains.Recorder.Concerns(other) {
		return fmt.Errorf("actions gave it the place of another object of the restore, %s/%s", to.Namespace, to.Name)
	}
	r.o.Moved = &to
	r.state.Entry.Moved(to)
	if r.chains.Names.Move(node, to) {
		r.state.Entry.Info(fmt.Sprintf("restored as %s/%s: actions gave it that place", to.Namespace, to.Name))
	}
	return nil
}
