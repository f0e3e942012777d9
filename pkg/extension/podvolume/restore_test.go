package podvolume_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/extension/podvolume"
)

type object = map[string]any

// The init container sees the volumes as the Pod does, and admission takes it wherever it takes the Pod.
func TestTheInitContainerRunsAsThePod(t *testing.T) {
	hardened := func(user int64) object {
		return object{"allowPrivilegeEscalation": false, "capabilities": object{"drop": []any{"ALL"}}, "seccompProfile": object{"type": "RuntimeDefault"}, "runAsUser": user}
	}
	root := hardened(0)
	root["capabilities"] = object{"drop": []any{"ALL"}, "add": []any{"DAC_OVERRIDE"}}
	unnamed := hardened(0)
	unnamed["capabilities"] = root["capabilities"]
	delete(unnamed, "runAsUser")
	plain := hardened(0)
	delete(plain, "runAsUser")
	for name, tt := range map[string]struct{ pod, first, want object }{
		"nothing is said":            {want: root},
		"the container names a user": {pod: object{"runAsUser": 1.0}, first: object{"runAsUser": 7.0}, want: object{"runAsUser": 7.0}},
		"the Pod names a user":       {pod: object{"runAsUser": 7.0}, want: plain},
		"the Pod names root":         {pod: object{"runAsUser": 0.0}, want: unnamed},
		"the container names root":   {first: object{"runAsUser": 0.0, "privileged": true}, want: object{"runAsUser": 0.0, "privileged": true, "capabilities": object{"add": []any{"DAC_OVERRIDE"}}}},
		"root is refused by the Pod": {pod: object{"runAsNonRoot": true}, want: hardened(1000)},
		"root is refused":            {first: object{"runAsNonRoot": true, "readOnlyRootFilesystem": true}, want: object{"runAsNonRoot": true, "readOnlyRootFilesystem": true, "runAsUser": int64(1000)}},
		"the container takes root":   {pod: object{"runAsNonRoot": true}, first: object{"runAsNonRoot": false}, want: object{"runAsNonRoot": false, "runAsUser": int64(0), "capabilities": object{"add": []any{"DAC_OVERRIDE"}}}},
		"capabilities of the container": {first: object{"capabilities": object{"drop": []any{"ALL"}, "add": []any{"CHOWN"}}},
			want: object{"runAsUser": int64(0), "capabilities": object{"drop": []any{"ALL"}, "add": []any{"CHOWN", "DAC_OVERRIDE"}}}},
	} {
		t.Run(name, func(t *testing.T) {
			container := object{"name": "app"}
			if tt.first != nil {
				container["securityContext"] = tt.first
			}
			spec := object{"containers": []any{container, object{"name": "other", "securityContext": object{"runAsUser": 5.0}}}}
			if tt.pod != nil {
				spec["securityContext"] = tt.pod
			}
			got := podvolume.SetWait(spec, &podvolume.Wait{Volumes: []string{"v"}, Config: parsed(t, nil)})["initContainers"].([]any)
			require.Equal(t, tt.want, got[0].(object)["securityContext"])
			require.NotContains(t, spec, "initContainers", "the spec given is left alone")
			require.Equal(t, tt.first, mapOf(container["securityContext"]), "so is the first container")
		})
	}
}

// An injector may put its sidecar before the container whose files the volumes have.
func TestTheInitContainerRunsAsTheContainerThatMountsTheVolumes(t *testing.T) {
	mounting := func(name string, user float64, volumes ...any) object {
		c := object{"name": name, "securityContext": object{"runAsUser": user}}
		for _, v := range volumes {
			c["volumeMounts"] = append(listOf(c["volumeMounts"]), object{"name": v, "mountPath": "/m"})
		}
		return c
	}
	spec := object{"containers": []any{mounting("istio-proxy", 1337, "istio-envoy"), mounting("mysql", 999, "settings", "data"), mounting("backup", 5, "data")}}
	got := podvolume.SetWait(spec, &podvolume.Wait{Volumes: []string{"data"}, Config: parsed(t, nil)})["initContainers"].([]any)
	require.Equal(t, object{"runAsUser": 999.0}, got[0].(object)["securityContext"])
}

// A kubelet mounts such a claim for reading, and no mover could fill it.
func TestAClaimThatAPodOnlyReadsIsFilled(t *testing.T) {
	volume := func(name string, claim object) object { return object{"name": name, "persistentVolumeClaim": claim} }
	mount := func(name string, more object) object { more["name"] = name; return more }
	makeSpec := func() object {
		return object{
			"volumes":        []any{volume("data", object{"claimName": "c", "readOnly": true}), volume("other", object{"claimName": "d", "readOnly": true})},
			"containers":     []any{object{"name": "a", "volumeMounts": []any{mount("data", object{"subPath": "s"}), mount("other", object{})}}, object{"name": "b"}},
			"initContainers": []any{object{"name": "i", "volumeMounts": []any{mount("data", object{})}}},
		}
	}
	spec := makeSpec()
	got := podvolume.SetWait(spec, &podvolume.Wait{Volumes: []string{"data"}, Config: parsed(t, nil)})
	require.Equal(t, []any{volume("data", object{"claimName": "c"}), spec["volumes"].([]any)[1]}, got["volumes"].([]any)[:2])
	require.Equal(t, []any{object{"name": "a", "volumeMounts": []any{mount("data", object{"subPath": "s", "readOnly": true}), mount("other", object{})}}, object{"name": "b"}}, got["containers"])
	require.Equal(t, object{"name": "i", "volumeMounts": []any{mount("data", object{"readOnly": true})}}, got["initContainers"].([]any)[1])
	require.Equal(t, makeSpec(), spec, "the spec given is left alone")
}

func listOf(v any) []any { l, _ := v.([]any); return l }

func mapOf(v any) object { o, _ := v.(object); return o }

// The name of a request and its operation are the same for every attempt of a restore, and others for
// each volume, Pod, namespace and restore; one claim has one request.
func TestNamesOfRequestsTellVolumesApart(t *testing.T) {
	name := func(restore, namespace, pod, volume, claim string) string {
		j := podvolume.RestoreJob{Name: "r", UID: types.UID(restore), Namespace: "velero"}
		v := &podvolume.RestoredVolume{Pod: types.NamespacedName{Namespace: namespace, Name: pod}, Volume: volume, Claim: claim}
		request := j.Request(v)
		require.Equal(t, "pvr."+request.Labels[podvolume.LabelOperation]+".1", j.OperationID(v))
		return request.Name
	}
	require.Equal(t, name("u", "n", "p", "v", "c"), name("u", "n", "q", "w", "c"))
	seen := map[string]bool{}
	for _, n := range []string{
		name("u", "n", "p", "v", ""), name("u", "n", "p", "w", ""), name("u", "n", "q", "v", ""), name("u", "m", "p", "v", ""), name("t", "n", "p", "v", ""),
		name("u", "n", "p", "v", "c"), name("u", "n", "p", "v", "d"), name("u", "m", "p", "v", "c"), name("t", "n", "p", "v", "c"),
	} {
		require.False(t, seen[n], n)
		seen[n] = true
	}
}

// restoring is an operation of one PodVolumeRestore.
func restoring(t *testing.T, change func(*velerov1.PodVolumeRestore)) *operationBed {
	t.Helper()
	api, clock := newAPI(t)
	j := podvolume.RestoreJob{Name: "b", UID: "uid-b", Namespace: "velero", Location: "l"}
	v := &podvolume.RestoredVolume{Pod: types.NamespacedName{Namespace: "n", Name: "p"}, Volume: "data", Snapshot: "s"}
	request := j.Request(v)
	change(request)
	require.NoError(t, api.Client.Create(t.Context(), request))
	return &operationBed{API: api, clock: clock, op: action.Operation{Action: podvolume.NameRestore, Kind: podvolume.KindRestore, ID: j.OperationID(v)}}
}

// A Pod may wait for a node as long as the operation may: its request is not given up.
func TestARequestWaitsForItsPod(t *testing.T) {
	b := restoring(t, func(*velerov1.PodVolumeRestore) {})
	b.clock.Step(2 * podvolume.PrepareTimeout)
	p := b.progress(t)
	require.False(t, p.Done)
	require.Empty(t, p.Err)
	accepted, err := b.cancel(t, jobJSON)
	require.NoError(t, err)
	require.True(t, accepted, "the timeout of the operation ends it")
	list, err := b.ListRestores(t.Context(), nil)
	require.NoError(t, err)
	require.True(t, list[0].Spec.Cancel)
}

// Who looks at the operation sees what to mend, and what was lost.
func TestAnOperationSaysWhatItsRequestDoes(t *testing.T) {
	b := restoring(t, func(r *velerov1.PodVolumeRestore) { r.Status.Message = "the Pod is not scheduled: no node fits" })
	require.Equal(t, "0 of 1 volumes are done; the Pod is not scheduled: no node fits", b.progress(t).Description)
	b = restoring(t, func(r *velerov1.PodVolumeRestore) {
		r.Status.Phase, r.Status.Message = velerov1.PodVolumePhaseCompleted, "ACLs: 1"
	})
	require.Equal(t, "1 of 1 volumes are done; ACLs: 1", b.progress(t).Description)
}

func TestTheEndOfARequestIsTheEndOfItsOperation(t *testing.T) {
	for _, tt := range []struct {
		phase         velerov1.PodVolumePhase
		message, want string
	}{
		{phase: velerov1.PodVolumePhaseCompleted},
		{velerov1.PodVolumePhaseFailed, "the volume is not empty", "volume data of pod n/p: the volume is not empty"},
		{velerov1.PodVolumePhaseCanceled, "asked for", "volume data of pod n/p: canceled: asked for"},
	} {
		b := restoring(t, func(r *velerov1.PodVolumeRestore) { r.Status.Phase, r.Status.Message = tt.phase, tt.message })
		p := b.progress(t)
		require.True(t, p.Done)
		require.Equal(t, tt.want, p.Err)
	}
}
