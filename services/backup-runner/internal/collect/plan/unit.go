package plan

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/holdfast-io/holdfast/pkg/archive/reference"
	"github.com/holdfast-io/holdfast/pkg/kube/resource"
)

// Unit is one list.
type Unit struct {
	Res       resource.Resource
	Namespace string // "" for all namespaces, or a cluster-scoped kind
	Selector  labels.Selector
	// Before are the selectors of other units over the same objects: what they match is theirs.
	Before []labels.Selector
	// Fields is a field selector, "" for none.
	Fields string
	// Role is set where more than the filter decides on an object.
	Role Role
}

// Role is how objects of a unit are chosen.
type Role int

// The roles.
const (
	// Plain objects are chosen by the filter.
	Plain Role = iota
	// NamespaceObjects also by whether anything of theirs was collected.
	NamespaceObjects
	// Definition is the definition of a collected custom resource.
	Definition
	// BoundVolume objects are chosen if a collected claim names them.
	BoundVolume
)

// ID names the unit in checkpoints: it is the same in every run of the backup.
func (u *Unit) ID() string {
	var b strings.Builder
	b.WriteString(u.Res.String())
	if u.Namespace != "" {
		b.WriteString("/" + u.Namespace)
	}
	if len(u.Before) > 0 {
		fmt.Fprintf(&b, "#%d", len(u.Before))
	}
	if u.Fields != "" {
		b.WriteString("?" + u.Fields)
	}
	return b.String()
}

// SelectorText returns the label selector as a list takes it.
func (u *Unit) SelectorText() string {
	if u.Selector == nil {
		return ""
	}
	return u.Selector.String()
}

// References returns what finds references in the unit's objects, nil if there is nothing to find.
func (u *Unit) References(set *reference.Set) *reference.Finder {
	if u.Res.Custom {
		return set.For(u.Res.Kind, u.Res.Name)
	}
	return set.For(u.Res.Kind, "")
}
