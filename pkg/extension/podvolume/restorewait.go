package podvolume

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// WaitContainer is the init container that holds a restored Pod back until its volumes are filled, and
// the emptyDir of that container.
// Velero's node-agent looks for it by that name.
const WaitContainer = "restore-wait"

// waitContainers are the names that it has, or had.
var waitContainers = []string{WaitContainer, "restic-wait"}

// Wait is what the init container is made of.
type Wait struct {
	Image string
	// Restore is the UID of the Restore.
	Restore types.UID
	// Pod is the name of the Pod.
	Pod string
	// Volumes are the names of the volumes that are waited for. Shared has how many Pods wait for the claim of
	// a volume, where others do.
	Volumes []string
	Shared  map[string]int
	// Config is required where there are volumes.
	Config *WaitConfig
}

const (
	waitDir = "/restores/"
	// waitState is where the init container keeps that it is done, in a volume of its own: a Pod whose
	// sandbox is made anew runs its init containers again.
	waitState = "/restore-state"
	// waitUser is the user where the Pod has to run as one other than root, and names none (Velero 1.18).
	waitUser = int64(1000)
)

// body is a part of an object.
type body = map[string]any

// HasWait reports whether the spec of a Pod has the init container of a restore.
func HasWait(spec map[string]any) bool {
	return slices.ContainsFunc(listAt(spec, "initContainers"), isWaitEntry)
}

// isWaitEntry reports whether a container or volume is that of a restore.
func isWaitEntry(entry any) bool {
	e, _ := entry.(body)
	name, _ := e["name"].(string)
	return slices.Contains(waitContainers, name)
}

// SetWait returns the spec of a Pod with the init container first and its volume last, and without those
// of earlier restores. With no volumes to wait for it has none. The spec given is not changed.
func SetWait(spec map[string]any, w *Wait) map[string]any {
	containers := slices.DeleteFunc(slices.Clone(listAt(spec, "initContainers")), isWaitEntry)
	volumes := slices.DeleteFunc(slices.Clone(listAt(spec, "volumes")), isWaitEntry)
	lists := map[string][]any{}
	if len(w.Volumes) > 0 {
		lists["containers"] = slices.Clone(listAt(spec, "containers"))
		w.openClaims(volumes, lists["containers"], containers)
		containers = slices.Insert(containers, 0, any(w.buildContainer(spec)))
		volumes = append(volumes, body{"name": WaitContainer, "emptyDir": body{}})
	}
	lists["initContainers"], lists["volumes"] = containers, volumes
	spec = maps.Clone(spec)
	for key, list := range lists {
		delete(spec, key)
		if len(list) > 0 {
			spec[key] = list
		}
	}
	return spec
}

// openClaims has containers mount a claim for reading where the Pod did so as a whole: the volume could not be
// filled. The lists are changed, what is in them is not.
func (w *Wait) openClaims(volumes []any, containers ...[]any) {
	for i, entry := range volumes {
		volume := maps.Clone(mapOf(entry))
		claim, name := maps.Clone(mapAt(volume, "persistentVolumeClaim")), fmt.Sprint(volume["name"])
		if claim["readOnly"] != true || !slices.Contains(w.Volumes, name) {
			continue
		}
		delete(claim, "readOnly")
		volume["persistentVolumeClaim"], volumes[i] = claim, volume
		for _, list := range containers {
			for j := range list {
				list[j] = setReadOnly(mapOf(list[j]), name)
			}
		}
	}
}

// setReadOnly returns a container that mounts a volume for reading only.
func setReadOnly(container body, volume string) body {
	mounts := slices.Clone(listAt(container, "volumeMounts"))
	for i := range mounts {
		if mount := maps.Clone(mapOf(mounts[i])); mount["name"] == volume {
			mount["readOnly"], mounts[i] = true, mount
		}
	}
	if len(mounts) > 0 {
		container = maps.Clone(container)
		container["volumeMounts"] = mounts
	}
	return container
}

func (w *Wait) buildContainer(spec body) body {
	args := []any{"wait", string(w.Restore), "--state", waitState}
	if len(w.Shared) > 0 {
		args = append(args, "--pod", w.Pod)
	}
	var mounts []any
	for _, name := range w.Volumes {
		if pods := w.Shared[name]; pods > 0 {
			args = append(args, "--shared", fmt.Sprintf("%s=%d", name, pods))
		}
		mounts = append(mounts, body{"name": name, "mountPath": waitDir + name})
	}
	mounts = append(mounts, body{"name": WaitContainer, "mountPath": waitState})
	return body{
		"name": WaitContainer, "image": w.Image, "args": args, "volumeMounts": mounts, "securityContext": w.securityOf(spec),
		"resources": w.Config.resourcesOf(w.chooseContainer(spec)),
	}
}

// securityOf returns the security context of the init container, which has to see the volumes as the
// Pod does: that of the first container which mounts one of them, as the user of the Pod. An injected sidecar
// may come before. Velero takes user 1000 where none is
// named; but then most images run as root, and keep their directories to themselves.
func (w *Wait) securityOf(spec body) body {
	if w.Config.security != nil {
		return maps.Clone(w.Config.security)
	}
	pod, own := mapAt(spec, "securityContext"), maps.Clone(mapAt(w.chooseContainer(spec), "securityContext"))
	if len(own) == 0 {
		own = body{
			"allowPrivilegeEscalation": false, "capabilities": body{"drop": []any{"ALL"}},
			"seccompProfile": body{"type": "RuntimeDefault"},
		}
	}
	user := own["runAsUser"]
	if user == nil {
		user = pod["runAsUser"]
	}
	if user == nil {
		user = int64(0)
		if own["runAsNonRoot"] == true || own["runAsNonRoot"] == nil && pod["runAsNonRoot"] == true {
			user = waitUser
		}
		own["runAsUser"] = user
	}
	if fmt.Sprint(user) == "0" {
		capabilities := body{}
		maps.Copy(capabilities, mapAt(own, "capabilities"))
		capabilities["add"] = append(slices.Clone(listAt(capabilities, "add")), "DAC_OVERRIDE")
		own["capabilities"] = capabilities
	}
	return own
}

// chooseContainer returns the first container that mounts one of the volumes, or the first of all.
func (w *Wait) chooseContainer(spec body) body {
	containers := listAt(spec, "containers")
	if len(containers) == 0 {
		return nil
	}
	return mapOf(containers[max(0, slices.IndexFunc(containers, w.mountsAny))])
}

// mountsAny reports whether a container mounts a volume that is waited for.
func (w *Wait) mountsAny(container any) bool {
	c, _ := container.(body)
	return slices.ContainsFunc(listAt(c, "volumeMounts"), func(entry any) bool {
		name, _ := mapOf(entry)["name"].(string)
		return slices.Contains(w.Volumes, name)
	})
}

func mapOf(entry any) body {
	o, _ := entry.(body)
	return o
}

func mapAt(o body, key string) body {
	child, _ := o[key].(body)
	return child
}

func listAt(o body, key string) []any {
	list, _ := o[key].([]any)
	return list
}
