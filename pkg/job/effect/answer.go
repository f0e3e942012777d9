// Package effect makes the calls of a job's actions that may begin an operation, which cannot be taken
// back. A record announces each call before it is made, and another one has its answer. The next
// holder of the job takes a recorded answer. Where none is recorded it repeats a call that carries an
// idempotency key, and no other.
package effect

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
)

// ErrUnclear is the error of an announced call without an answer, which is not repeated.
var ErrUnclear = errors.New("the runner ended around this call; it is not made again, since it may have begun an operation")

// Answer is how a call about an object ended, as records have it.
type Answer struct {
	// Body is the object as the action left it; nil if it changed nothing.
	Body []byte `json:"body,omitempty"`
	// Additional are the objects that the action named.
	Additional []operation.Resource `json:"additional,omitempty"`
	// Notes are the action's messages about the object.
	Notes []action.Note `json:"notes,omitempty"`
	// Error is set instead when the call failed.
	Error string `json:"error,omitempty"`
}

// NewAnswer returns the answer of an action that left an object like this, and the error of its call:
// failure, or that the object is not JSON.
func NewAnswer(name string, given, left *action.Object, additional []action.Item, failure error) (a Answer, err error) {
	if failure == nil && left != nil && left != given {
		if a.Body, err = left.JSON(); err != nil {
			failure = fmt.Errorf("action %s: Execute: %w", name, err)
		}
	}
	if failure != nil {
		return Answer{Error: failure.Error()}, failure
	}
	a.Additional = Resources(additional)
	return a, nil
}

// Object returns what a recorded call left of the object that it was given, or its error.
func (a *Answer) Object(given *action.Object) (*action.Object, error) {
	switch {
	case a.Error != "":
		return nil, errors.New(a.Error)
	case a.Body != nil:
		return action.FromJSON(a.Body), nil
	}
	return given, nil
}

// Resources names items as records do.
func Resources(items []action.Item) (out []operation.Resource) {
	for _, item := range items {
		out = append(out, operation.Resource{Group: item.Group, Resource: item.Resource, Namespace: item.Namespace, Name: item.Name})
	}
	return out
}

// Items names recorded objects as actions do.
func Items(resources []operation.Resource) (out []action.Item) {
	for _, r := range resources {
		out = append(out, action.Item{GroupResource: schema.GroupResource{Group: r.Group, Resource: r.Resource}, Namespace: r.Namespace, Name: r.Name})
	}
	return out
}
