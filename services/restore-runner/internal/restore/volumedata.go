package restore

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
func (r *run) reportClaimData(e *outcome.Entry, it *object.Object) {
	name := decoded.Text(decoded.Object(it.Body, "spec"), "volumeName")
	if problem := r.Volumes.Problem(name); name != "" && problem != "" {
		e.Error("volume " + name + ": " + problem)
		return
	}
	if problem := r.Volumes.ClaimProblem(r.Plan.Source(it.Node), r.Plan.Node(it.Node).Name); problem != "" {
		e.Error("claim " + r.Plan.Node(it.Node).Name + ": " + problem)
	}
}

// reportPodData reports the data of volumes of a pod of which the backup names no claim, with the
// claim that the pod names.
func (r *run) reportPodData(e *outcome.Entry, it *object.Object) {
	problems := r.Volumes.PodProblems(r.Plan.Source(it.Node), r.Plan.Node(it.Node).Name)
	if len(problems) == 0 {
		return
	}
	claims := map[string]string{}
	for _, v := range decoded.List(decoded.Object(it.Body, "spec"), "volumes") {
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
