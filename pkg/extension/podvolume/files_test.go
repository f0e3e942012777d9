package podvolume_test

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/holdfast-io/holdfast/pkg/extension/podvolume"
)

func newPodAPI(pods ...client.Object) podvolume.API {
	c := fake.NewClientBuilder().WithObjects(pods...).Build()
	return podvolume.API{Reader: c, Client: c, Namespace: "velero", Clock: clock.RealClock{}, Log: slog.New(slog.DiscardHandler)}
}

// Files are written where a kubelet has the volume mounted for writing.
func TestFindMount(t *testing.T) {
	newPod := func(name string, change func(*corev1.Pod)) *corev1.Pod {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid-" + name)},
			Spec: corev1.PodSpec{
				NodeName: "n1", Containers: []corev1.Container{{Name: "c", VolumeMounts: []corev1.VolumeMount{{Name: "v"}}}},
				Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}},
			},
			Status: corev1.PodStatus{Phase: corev1.PodRunning},
		}
		change(pod)
		return pod
	}
	unfit := map[string]func(*corev1.Pod){
		"it is of another namespace":    func(p *corev1.Pod) { p.Namespace = "other" },
		"it is pending":                 func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending },
		"it has ended":                  func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded },
		"it is being deleted":           func(p *corev1.Pod) { p.DeletionTimestamp, p.Finalizers = new(metav1.Now()), []string{"a/b"} },
		"another claim is mounted":      func(p *corev1.Pod) { p.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = "data2" },
		"no container mounts the claim": func(p *corev1.Pod) { p.Spec.Containers[0].VolumeMounts = nil },
		"the claim is mounted to read":  func(p *corev1.Pod) { p.Spec.Volumes[0].PersistentVolumeClaim.ReadOnly = true },
	}
	for name, change := range unfit {
		t.Run(name, func(t *testing.T) {
			api := newPodAPI(newPod("a", change))
			_, err := api.FindMount(t.Context(), types.NamespacedName{Namespace: "shop", Name: "data"})
			require.ErrorContains(t, err, "no Pod that runs mounts it for writing")
		})
	}
	api := newPodAPI(newPod("c", func(*corev1.Pod) {}), newPod("b", func(*corev1.Pod) {}), newPod("a", unfit["it is pending"]),
		newPod("d", func(p *corev1.Pod) {
			p.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}
		}))
	found, err := api.FindMount(t.Context(), types.NamespacedName{Namespace: "shop", Name: "data"})
	require.NoError(t, err)
	require.Equal(t, podvolume.RestoredVolume{Pod: types.NamespacedName{Namespace: "shop", Name: "b"}, PodUID: "uid-b", Volume: "v", Claim: "data"}, found)
	found, err = api.FindMount(t.Context(), types.NamespacedName{Namespace: "shop", Name: "d-v"})
	require.NoError(t, err)
	require.Equal(t, "d", found.Pod.Name)
}
