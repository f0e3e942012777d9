package podvolume

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// podVolume is a volume of a Pod that the backup chooses.
type podVolume struct {
	name string
	// claim is that of the volume, in the Pod's namespace; empty for one that lives on the node.
	claim string
	// explicit volumes are named by the Pod's annotation, others are chosen by default.
	explicit bool
	// mounted volumes are used by a container, so that the kubelet sets them up on the node.
	mounted bool
	// unfit is why a file-system backup never takes such a volume, or this backup does not.
	unfit string
}

// chooseVolumes returns the volumes of a Pod that the backup chooses for file-system backup, as
// Velero 1.18 does: those that the Pod's annotation names, or with byDefault all but those that
// another annotation names. The volume that a restore added to wait for its data is never chosen. Without claims volumes of claims are unfit. missing are names that
// no volume of the Pod has.
func chooseVolumes(pod *corev1.Pod, byDefault, claims bool) (chosen []podVolume, missing []string) {
	included, excluded := listNames(pod.Annotations[velerov1.AnnotationBackupVolumes]), listNames(pod.Annotations[velerov1.AnnotationBackupVolumesExcludes])
	used := usedVolumes(&pod.Spec)
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		one := podVolume{name: v.Name, claim: claimOf(pod.Name, v), explicit: slices.Contains(included, v.Name) && !byDefault, unfit: unfitVolume(v)}
		_, one.mounted = used[v.Name]
		switch {
		case byDefault && (slices.Contains(excluded, v.Name) || one.unfit != ""), !byDefault && !one.explicit, v.Name == WaitContainer:
			continue
		case one.claim != "" && !claims:
			one.unfit = "the resources of the backup leave out claims"
		}
		chosen = append(chosen, one)
	}
	if byDefault {
		return chosen, nil
	}
	for _, name := range included {
		if !slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == name }) {
			missing = append(missing, name)
		}
	}
	return chosen, missing
}

// listNames reads a list of names that commas separate.
func listNames(text string) (names []string) {
	for name := range strings.SplitSeq(text, ",") {
		if name = strings.TrimSpace(name); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// explainMissing says why the annotation of a Pod names nothing that it has: often the claim in place of the volume.
func explainMissing(pod *corev1.Pod, name string) string {
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; claimOf(pod.Name, v) == name {
			return fmt.Sprintf("the pod has no volume of that name, which is the claim of volume %s: name that", v.Name)
		}
	}
	return "the pod has no volume of that name"
}

// claimOf returns the claim of a volume of a Pod of that name; empty without one.
func claimOf(pod string, v *corev1.Volume) string {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName
	case v.Ephemeral != nil:
		return pod + "-" + v.Name
	}
	return ""
}

// unfitVolume returns why volumes of this kind are never taken; empty for others.
func unfitVolume(v *corev1.Volume) string {
	switch {
	case v.HostPath != nil:
		return "a hostPath volume belongs to the node"
	case v.Secret != nil, v.ConfigMap != nil, v.Projected != nil, v.DownwardAPI != nil:
		return "its content comes from the API server"
	case v.Image != nil:
		return "its content comes from an image"
	case strings.HasPrefix(v.Name, "default-token"):
		return "it is the token of a service account"
	}
	return ""
}

// usedVolumes returns the volumes that containers of a Pod use. Init containers count: the kubelet
// sets their volumes up for as long as the Pod runs.
func usedVolumes(spec *corev1.PodSpec) map[string]struct{} {
	used := map[string]struct{}{}
	for _, c := range slices.Concat(spec.Containers, spec.InitContainers) {
		for i := range c.VolumeMounts {
			used[c.VolumeMounts[i].Name] = struct{}{}
		}
		for i := range c.VolumeDevices {
			used[c.VolumeDevices[i].Name] = struct{}{}
		}
	}
	return used
}
