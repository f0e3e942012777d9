package podvolume

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-io/holdfast/pkg/spec/selection"
)

// SettingPaths has, as a JSON list, the paths that alone are restored, into a volume in use.
const SettingPaths = "Paths"

// Why no file is restored into a claim.
var (
	errAgent     = errors.New("a node-agent of Velero's runs, which restores no single files (--volume-mover=velero)")
	errUnmounted = errors.New("no Pod that runs mounts it for writing")
)

// SelectPaths returns the job with requests for these paths alone.
func (j RestoreJob) SelectPaths(paths []string) (RestoreJob, error) {
	text, err := json.Marshal(paths)
	j.Settings = maps.Clone(j.Settings)
	j.Settings[SettingPaths], j.Settings[settingOverwrite] = string(text), "true"
	return j, err
}

// PathsOf returns the paths that the settings of a request select; none for a request that restores all.
func PathsOf(settings map[string]string) (paths []string, err error) {
	text, selects := settings[SettingPaths]
	if !selects {
		return nil, nil
	}
	if err = json.Unmarshal([]byte(text), &paths); err == nil {
		err = selection.CheckPaths(paths) // none would be all
	}
	if err != nil {
		return nil, fmt.Errorf("spec.uploaderSettings[%s]: %w", SettingPaths, err)
	}
	return paths, nil
}

// FindMount finds the volume of a claim in a Pod that runs, and that has mounted it for writing: of several the first by
// name.
func (a API) FindMount(ctx context.Context, claim types.NamespacedName) (found RestoredVolume, err error) {
	nodes, err := a.listAgents(ctx)
	switch {
	case err != nil:
		return found, err
	case len(nodes) > 0:
		return found, errAgent
	}
	var page corev1.PodList
	err = a.eachPodPage(ctx, claim.Namespace, &page, func() {
		for i := range page.Items {
			pod := &page.Items[i]
			facts, volume := factsOf(pod), mountOf(pod, claim.Name)
			if volume != "" && facts.isRunning() && (found.Volume == "" || pod.Name < found.Pod.Name) {
				found = RestoredVolume{Pod: types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}, PodUID: pod.UID, Volume: volume, Claim: claim.Name}
			}
		}
	})
	if err == nil && found.Volume == "" {
		err = errUnmounted
	}
	return found, err
}

// mountOf returns the volume that a Pod has mounted a claim as for writing; empty without one.
func mountOf(pod *corev1.Pod, claim string) string {
	used := usedVolumes(&pod.Spec)
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		_, mounted := used[v.Name]
		if mounted && claimOf(pod.Name, v) == claim && (v.PersistentVolumeClaim == nil || !v.PersistentVolumeClaim.ReadOnly) {
			return v.Name
		}
	}
	return ""
}
