package moverpod_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/holdfast-io/holdfast/services/volume-mover/internal/moverpod"
)

func TestAMoverPodHasNoMoreThanItNeeds(t *testing.T) {
	pod := moverpod.BuildPod(moverpod.Settings{
		Namespace: "velero", Image: "mover:1", PullPolicy: corev1.PullNever, ServiceAccount: "mover",
		Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("512Mi")}},
	}, moverpod.Mover{
		Name: "r-1", Labels: moverpod.BuildLabels(moverpod.ValueRestore, strings.Repeat("r", 70)),
		Node: "node-1", Directory: "/d", Args: moverpod.Restore{Namespace: "shop", Snapshot: "s", DoneFile: "uid", Overwrite: true}.BuildArgs(),
	})
	require.Equal(t, "velero/r-1", pod.Namespace+"/"+pod.Name)
	require.Len(t, pod.Labels["velero.io/pod-volume-restore"], 63)
	require.Equal(t, "restore", pod.Labels[moverpod.LabelMover])
	require.False(t, *pod.Spec.AutomountServiceAccountToken)
	require.Equal(t, corev1.RestartPolicyNever, pod.Spec.RestartPolicy)
	require.Equal(t, "true", pod.Labels["velero.io/exclude-from-backup"], "its cache is nobody's data, and its Secret has keys")
	tolerations := pod.Spec.Tolerations
	require.Equal(t, corev1.Toleration{Operator: corev1.TolerationOpExists}, tolerations[len(tolerations)-1], "it runs where the volume is")
	for i, key := range []string{"node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready"} {
		require.Equal(t, key, tolerations[i].Key)
		require.EqualValues(t, 300, *tolerations[i].TolerationSeconds, "it does not run for ever on a node that is gone")
	}
	c := pod.Spec.Containers[0]
	require.Nil(t, c.SecurityContext.Privileged)
	require.True(t, *c.SecurityContext.ReadOnlyRootFilesystem)
	require.NotContains(t, c.SecurityContext.Capabilities.Add, corev1.Capability("SYS_ADMIN"))
	require.Equal(t, []corev1.Capability{"ALL"}, c.SecurityContext.Capabilities.Drop)
	require.Equal(t, corev1.PullNever, c.ImagePullPolicy)
	require.False(t, c.VolumeMounts[2].ReadOnly, "a restore writes the volume")
	line := strings.Join(c.Args, " ")
	require.Contains(t, line, "move restore --location /mover/location.yaml")
	require.Contains(t, line, "--snapshot s --target /volume --done-file uid --overwrite --memory-mib 256")
	mounted := map[string]bool{}
	for _, v := range c.VolumeMounts {
		mounted[v.MountPath] = true
	}
	require.Equal(t, map[string]bool{"/mover": true, "/cache": true, "/volume": true}, mounted)
}

// A mover without a volume runs where there is room, and may do nothing that a file of another user needs.
func TestAMoverPodWithoutAVolume(t *testing.T) {
	pod := moverpod.BuildPod(moverpod.Settings{Namespace: "velero", Image: "mover:1"}, moverpod.Mover{
		Name: "forget-1", Args: moverpod.Forget{Namespace: "shop", Snapshots: []string{"a", "b"}}.BuildArgs(),
	})
	require.Empty(t, pod.Spec.NodeName)
	require.Empty(t, pod.Spec.Tolerations)
	for _, v := range pod.Spec.Volumes {
		require.Nil(t, v.HostPath)
	}
	c := pod.Spec.Containers[0]
	require.Empty(t, c.SecurityContext.Capabilities.Add)
	require.Equal(t, "forget", c.Args[0])
	require.Equal(t, []string{"--snapshot", "a", "--snapshot", "b"}, c.Args[len(c.Args)-4:])
}

// A mover of a claim runs where the scheduler finds its volume: only a scheduled Pod has a claim be provisioned whose
// class waits for a consumer.
func TestAMoverPodOfAClaim(t *testing.T) {
	m := moverpod.Mover{
		Name: "b-1", Claim: "b-1", ReadOnly: true, Nodes: moverpod.SelectNode("node-1"), Labels: moverpod.BuildLabels(moverpod.ValueUpload, "b-1"),
		Args: moverpod.Upload{Namespace: "shop", Volume: "db", OperationID: "du-1"}.BuildArgs(),
	}
	pod := moverpod.BuildPod(moverpod.Settings{Namespace: "velero", Image: "mover:1"}, m)
	require.Empty(t, pod.Spec.NodeName)
	require.Empty(t, pod.Spec.Tolerations, "it need not run on a node that is kept for others")
	term := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0]
	require.Equal(t, []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"node-1"}}}, term.MatchFields)
	require.Equal(t, "b-1", pod.Labels["velero.io/data-upload"])
	c := pod.Spec.Containers[0]
	require.Equal(t, corev1.VolumeMount{Name: "volume", MountPath: "/volume", ReadOnly: true}, c.VolumeMounts[2])
	require.Equal(t, []string{"--create-repository", "--volume", "db", "--source", "/volume", "--operation-id", "du-1"}, c.Args[len(c.Args)-7:])

	m.Block, m.Nodes, m.Args = true, nil, moverpod.Restore{Namespace: "shop", Snapshot: "s"}.BuildArgs()
	pod = moverpod.BuildPod(moverpod.Settings{Namespace: "velero", Image: "mover:1"}, m)
	require.Nil(t, pod.Spec.Affinity)
	c = pod.Spec.Containers[0]
	require.Equal(t, []corev1.VolumeDevice{{Name: "volume", DevicePath: "/volume"}}, c.VolumeDevices)
	require.Len(t, c.VolumeMounts, 2)
	require.NotContains(t, c.Args, "--done-file", "no Pod waits for the data of a claim")
}
