package screen

import (
	"fmt"
	"maps"
	"slices"

	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/decoded"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/object"
)

// reportClaimData reports the data of a claim that does not come back: by its volume, or by the
// claim where the backup has no volume of it.
func (s *Screen) reportClaimData(e *outcome.Entry, o *object.Object) {
	name := decoded.Text(decoded.Object(o.Body, "spec"), "volumeName")
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
	for _, v := range decoded.List(decoded.Object(o.Body, "spec"), "volumes") {
		if volume, ok := v.(map[string]any); ok {
			claims[decoded.Text(volume, "name")] = decoded.Text(decoded.Object(volume, "persistentVolumeClaim"), "claimName")
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
