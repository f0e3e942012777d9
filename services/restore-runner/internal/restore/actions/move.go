package actions

import (
	"fmt"

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

// moveObject gives the object the name and the namespace that the actions left it with. Actions see the namespaces of the
// backup. One to which the restore restores nothing is not followed: it is not reserved for the restore.
func (r *objectRun) moveObject() error {
	id, err := r.object.Identity()
	if err != nil || r.requiredName() != "" {
		return err
	}
	p, node := r.chains.Plan, r.o.Node
	source, planned := p.Source(node), outcome.Moved{Namespace: p.Target(node), Name: p.Name(node)}
	to, unknown := outcome.Moved{Namespace: planned.Namespace, Name: id.Name}, false
	if planned.Namespace != "" && id.Namespace != "" && id.Namespace != source && id.Namespace != planned.Namespace {
		if mapped := p.MapNamespace(id.Namespace); r.chains.targets[mapped] {
			source, to.Namespace = id.Namespace, mapped
		} else {
			unknown = true
		}
	}
	if to == planned && !unknown {
		return nil
	}
	if other, taken := p.Find(p.Kind(node).String(), source, to.Name); taken && other != node && r.chains.Recorder.Concerns(other) {
		return fmt.Errorf("actions gave it the place of another object of the restore, %s/%s", to.Namespace, to.Name)
	}
	r.o.Moved = &to
	r.state.Entry.Moved(to)
	if !r.chains.Names.Move(node, to) {
		return nil // it is said already
	}
	if unknown {
		r.state.Entry.Warn(fmt.Sprintf("actions put it into namespace %q, to which this restore restores nothing: it is restored to %q", id.Namespace, to.Namespace))
		return nil
	}
	r.state.Entry.Info(fmt.Sprintf("restored as %s/%s: actions gave it that place", to.Namespace, to.Name))
	return nil
}
