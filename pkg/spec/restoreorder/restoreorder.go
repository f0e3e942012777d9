// Package restoreorder reads what the annotations of a Restore say about the order of its objects,
// and about those that it leaves out unless they are asked for.
package restoreorder

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
)

// Order is an order of the objects of a restore.
type Order string

// The orders.
const (
	// Stages is the default: no controller acts before what it would make is there.
	Stages Order = "stages"
	// Owners has owners before what they own, roots before leaves.
	Owners Order = "owners"
	// Velero is Velero's list of priorities alone, one resource after the other.
	Velero Order = "velero"
)

var orders = []Order{Stages, Owners, Velero}

// ParseOrder reads an order; empty is Stages.
func ParseOrder(text string) (Order, error) {
	switch {
	case text == "":
		return Stages, nil
	case slices.Contains(orders, Order(text)):
		return Order(text), nil
	}
	return "", fmt.Errorf("%q is not stages, owners or velero", text)
}

// all selects every kind of runs.
const all = "*"

// runs are the resources whose objects are one run of something: a restored one would run again.
var runs = []schema.GroupResource{
	{Group: "cert-manager.io", Resource: "certificaterequests"}, // https://cert-manager.io/docs/usage/certificaterequest/
	{Group: "acme.cert-manager.io", Resource: "orders"},         // https://cert-manager.io/docs/concepts/acme-orders-challenges/
	{Group: "acme.cert-manager.io", Resource: "challenges"},
	{Group: "tekton.dev", Resource: "pipelineruns"}, // https://tekton.dev/docs/pipelines/pipelineruns/
	{Group: "tekton.dev", Resource: "taskruns"},
	{Group: "tekton.dev", Resource: "customruns"},
	{Group: "tekton.dev", Resource: "runs"},
	{Group: "argoproj.io", Resource: "workflows"}, // https://argo-workflows.readthedocs.io/en/latest/workflow-concepts/
	{Group: "argoproj.io", Resource: "analysisruns"},
	{Group: "argoproj.io", Resource: "experiments"},
}

// jobs are left out once they ended, unless they are asked for.
var jobs = schema.GroupResource{Group: "batch", Resource: "jobs"}

// RunningJobs is what becomes of Jobs that ran when they were backed up.
type RunningJobs string

// What can become of them.
const (
	// StartJobs is the default: they begin anew.
	StartJobs RunningJobs = "start"
	// SuspendJobs creates them suspended.
	SuspendJobs RunningJobs = "suspend"
	// SkipJobs leaves them out.
	SkipJobs RunningJobs = "skip"
)

// ParseRunningJobs reads what becomes of running Jobs; empty is StartJobs.
func ParseRunningJobs(text string) (RunningJobs, error) {
	switch j := RunningJobs(text); j {
	case "":
		return StartJobs, nil
	case StartJobs, SuspendJobs, SkipJobs:
		return j, nil
	}
	return "", fmt.Errorf("%q is not start, suspend or skip", text)
}

// Runs are the resources whose objects are restored all the same although they would run again.
type Runs struct {
	asked map[schema.GroupResource]bool
	// Running is what becomes of Jobs that ran when they were backed up.
	Running RunningJobs
}

// ParseRuns reads a comma-separated list of such resources ("workflows.argoproj.io"), or "*" for
// all of them.
func ParseRuns(text string) (Runs, error) {
	r := Runs{asked: map[schema.GroupResource]bool{}}
	if text == "" {
		return r, nil
	}
	for _, name := range strings.Split(text, ",") {
		name = strings.TrimSpace(name)
		gr := schema.ParseGroupResource(name)
		switch {
		case name == all:
			r.asked[jobs] = true
			for _, known := range runs {
				r.asked[known] = true
			}
		case slices.Contains(runs, gr), gr == jobs:
			r.asked[gr] = true
		default:
			return r, fmt.Errorf("%q is not one of the resources that are left out because they would run again: %s", name, strings.Join(runNames(), ", "))
		}
	}
	return r, nil
}

func runNames() []string {
	names := make([]string, len(runs), len(runs)+1)
	for i, gr := range runs {
		names[i] = gr.String()
	}
	return append(names, jobs.String())
}

// RunsJobs reports that Jobs that ended are restored, and run again.
func (r Runs) RunsJobs() bool { return r.asked[jobs] }

// LeavesOut reports that objects of a resource are not restored.
func (r Runs) LeavesOut(gr schema.GroupResource) bool {
	return slices.Contains(runs, gr) && !r.asked[gr]
}

// Parse reads the annotations of a Restore. An error names the annotation.
func Parse(annotations map[string]string) (Order, Runs, error) {
	order, err := ParseOrder(annotations[holdfast.AnnotationOrder])
	if err != nil {
		return "", Runs{}, fmt.Errorf("metadata.annotations[%s]: %w", holdfast.AnnotationOrder, err)
	}
	again, err := ParseRuns(annotations[holdfast.AnnotationRunAgain])
	if err != nil {
		return "", Runs{}, fmt.Errorf("metadata.annotations[%s]: %w", holdfast.AnnotationRunAgain, err)
	}
	if again.Running, err = ParseRunningJobs(annotations[holdfast.AnnotationRunningJobs]); err != nil {
		return "", Runs{}, fmt.Errorf("metadata.annotations[%s]: %w", holdfast.AnnotationRunningJobs, err)
	}
	return order, again, nil
}
