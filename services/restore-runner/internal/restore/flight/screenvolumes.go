package flight

import (
	"fmt"
	"maps"
	"slices"

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
	if problem := s.Volumes.ClaimProblem(s.Plan.Source(o.Node), s.Plan.Name(o.Node)); problem != "" {
		e.Error("claim " + s.Plan.Name(o.Node) + ": " + problem)
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
