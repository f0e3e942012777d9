package restore

import (
	"fmt"
	"maps"
	"slices"

	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
)

// reportClaimData reports the data of a claim that does not come back: by its volume, or by the
// claim where the backup has no volume of it.
func (r *run) reportClaimData(e *outcome.Entry, it *item) {
	name := text(section(it.body, "spec"), "volumeName")
	if problem := r.Volumes.Problem(name); name != "" && problem != "" {
		e.Error("volume " + name + ": " + problem)
		return
	}
	if problem := r.Volumes.ClaimProblem(r.Plan.Source(it.node), r.Plan.Node(it.node).Name); problem != "" {
		e.Error("claim " + r.Plan.Node(it.node).Name + ": " + problem)
	}
}

// reportPodData reports the data of volumes of a pod of which the backup names no claim, with the
// claim that the pod names.
func (r *run) reportPodData(e *outcome.Entry, it *item) {
	problems := r.Volumes.PodProblems(r.Plan.Source(it.node), r.Plan.Node(it.node).Name)
	if len(problems) == 0 {
		return
	}
	claims := map[string]string{}
	for _, v := range list(section(it.body, "spec"), "volumes") {
		if volume, ok := v.(map[string]any); ok {
			claims[text(volume, "name")] = text(section(volume, "persistentVolumeClaim"), "claimName")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(problems)) {
		what := fmt.Sprintf("volume %s of the pod", name)
		if claims[name] != "" {
			what += ", claim " + claims[name]
		}
		e.Error(what + ": " + problems[name])
	}
}

// section returns a part of an object, empty where there is none.
func section(o map[string]any, key string) map[string]any {
	part, ok := o[key].(map[string]any)
	if !ok {
		return nil
	}
	return part
}
