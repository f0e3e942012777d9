package podvolume_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/extension/podvolume"
)

func parsed(t *testing.T, data map[string]string) *podvolume.WaitConfig {
	t.Helper()
	c, err := podvolume.ParseWaitConfig(data)
	require.NoError(t, err)
	return c
}

// A ConfigMap for Velero's action is obeyed, but for its image and command, which are another program's.
func TestTheConfigMapOfTheInitContainer(t *testing.T) {
	container := func(data map[string]string) object {
		spec := object{"containers": []any{object{"name": "app", "securityContext": object{"runAsUser": 7.0}}}}
		wait := &podvolume.Wait{Image: "mover:1", Volumes: []string{"v"}, Config: parsed(t, data)}
		return podvolume.SetWait(spec, wait)["initContainers"].([]any)[0].(object)
	}
	c := container(map[string]string{"image": "velero/velero:v1", "command": "/velero-restore-helper", "cpuRequest": "50m", "memLimit": "1Gi"})
	require.Equal(t, "mover:1", c["image"])
	require.NotContains(t, c, "command")
	require.Equal(t, object{"requests": object{"cpu": "50m", "memory": "128Mi"}, "limits": object{"cpu": "100m", "memory": "1Gi"}}, c["resources"])
	require.Equal(t, object{"runAsUser": 7.0}, c["securityContext"])

	c = container(map[string]string{"secCtxRunAsUser": "1001", "secCtxRunAsGroup": "999", "secCtxAllowPrivilegeEscalation": "false", "secCtx": "capabilities: {drop: [ALL]}\nrunAsUser: 1002\n"})
	require.Equal(t, object{"runAsUser": int64(1002), "runAsGroup": int64(999), "allowPrivilegeEscalation": false, "capabilities": object{"drop": []any{"ALL"}}}, c["securityContext"])
}

// TestALimitRangeTakesTheInitContainerWhereItTakesThePods checks that limits of a namespace, whose minimum the container of
// the volume keeps, do not refuse the restored Pod because of what was added to it.
func TestALimitRangeTakesTheInitContainerWhereItTakesThePods(t *testing.T) {
	for name, tc := range map[string]struct{ own, want object }{
		"nothing":        {nil, object{"requests": object{"cpu": "100m", "memory": "128Mi"}, "limits": object{"cpu": "100m", "memory": "128Mi"}}},
		"less":           {object{"requests": object{"cpu": "10m"}, "limits": object{"memory": "16Mi"}}, object{"requests": object{"cpu": "100m", "memory": "128Mi"}, "limits": object{"cpu": "100m", "memory": "128Mi"}}},
		"more":           {object{"requests": object{"cpu": "1", "memory": "1Gi"}, "limits": object{"cpu": "2", "memory": "1Gi"}}, object{"requests": object{"cpu": "1", "memory": "1Gi"}, "limits": object{"cpu": "2", "memory": "1Gi"}}},
		"without limits": {object{"requests": object{"cpu": "1"}}, object{"requests": object{"cpu": "1", "memory": "128Mi"}, "limits": object{"cpu": "1", "memory": "128Mi"}}},
		"other":          {object{"limits": object{"example.com/gpu": "1"}}, object{"requests": object{"cpu": "100m", "memory": "128Mi"}, "limits": object{"cpu": "100m", "memory": "128Mi"}}},
	} {
		t.Run(name, func(t *testing.T) {
			user := object{"name": "app", "resources": tc.own, "volumeMounts": []any{object{"name": "v"}}}
			spec := object{"containers": []any{object{"name": "proxy"}, user}}
			config := parsed(t, nil)
			for range 2 { // a configuration is of all Pods
				wait := &podvolume.Wait{Image: "mover:1", Volumes: []string{"v"}, Config: config}
				require.Equal(t, tc.want, podvolume.SetWait(spec, wait)["initContainers"].([]any)[0].(object)["resources"])
			}
		})
	}
}

func TestAConfigMapThatCannotBeUnderstood(t *testing.T) {
	for key, value := range map[string]string{
		"cpuRequest": "much", "memLimit": "1 GB", "secCtxRunAsUser": "root", "secCtxAllowPrivilegeEscalation": "perhaps", "secCtx": "runAs: 1",
	} {
		_, err := podvolume.ParseWaitConfig(map[string]string{key: value})
		require.ErrorIs(t, err, podvolume.ErrWaitConfig, key)
	}
}
