package flight

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/object"
)

// reportClaimData reports the data of a claim that does not come back: by its volume, or by the
// claim where the backup has no volume of it.
func (s *Screen) reportClaimData(e *outcome.Entry, o *object.Object) {
	name := object.TextAt(object.MapAt(o.Body, "spec"), "volumeName")
	if problem := s.Volumes.Problem(name); name != "" && problem != "" {
		e.Error("volume " + name + ": " + problem)
		return
	}
	source, claim := s.Plan.Source(o.Node), s.Plan.Name(o.Node)
	if problem := s.Volumes.ClaimProblem(source, claim); problem != "" {
		e.Error("claim " + claim + ": " + problem)
		return
	}
	pods, filled := s.Volumes.Mounts(source, claim)
	planned := slices.ContainsFunc(pods, func(pod string) bool {
		node, ok := s.Plan.Find("pods", source, pod)
		return ok && s.Owners.Recorder.Concerns(node)
	})
	if filled && !planned {
		e.Error(fmt.Sprintf("claim %s: its data is restored with a Pod that mounts it (%s), and none is part of the restore: the claim gets a new, empty volume",
			claim, strings.Join(pods, ", ")))
	}
}

// reportPodData reports the data of volumes of a pod of which the backup names no claim, with the
// claim that the pod names.
func (s *Screen) reportPodData(e *outcome.Entry, o *object.Object) {
	problems := s.Volumes.PodProblems(s.Plan.Source(o.Node), s.Plan.Name(o.Node))
	if len(problems) == 0 {
		return
	}
	claims := map[string]string{}
	for _, v := range object.ListAt(object.MapAt(o.Body, "spec"), "volumes") {
		if volume, ok := v.(map[string]any); ok {
			claims[object.TextAt(volume, "name")] = object.TextAt(object.MapAt(volume, "persistentVolumeClaim"), "claimName")
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
