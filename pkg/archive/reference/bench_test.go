package reference

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// BenchmarkPod measures a Pod of 2 KB as API servers send it: two fifths of it are metadata, one
// third is status.
func BenchmarkPod(b *testing.B) {
	raw, err := json.Marshal(corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web-5c9d", Namespace: "shop", Annotations: map[string]string{"managed": strings.Repeat("field ", 140)}},
		Spec: corev1.PodSpec{
			ServiceAccountName: "web", PriorityClassName: "high",
			Volumes: []corev1.Volume{
				{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: localReference("web-config")}}},
				{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "web-data"}}},
			},
			Containers: []corev1.Container{{Name: "web", Image: "registry.example.com/shop/web:1.2.3", Command: []string{"/web", "--listen=:8080"}, Env: []corev1.EnvVar{
				{Name: "PASSWORD", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: localReference("web-secret"), Key: "password"}}}}}},
		},
		Status: corev1.PodStatus{Message: strings.Repeat("ready ", 115)},
	})
	require.NoError(b, err)
	require.InDelta(b, 2048, len(raw), 200)
	benchmarkFinder(b, "Pod", raw, 5)
}

// BenchmarkConfigMap measures a kind without rules.
func BenchmarkConfigMap(b *testing.B) {
	raw, err := json.Marshal(corev1.ConfigMap{Data: map[string]string{"k": strings.Repeat("v", 2000)}})
	require.NoError(b, err)
	benchmarkFinder(b, "ConfigMap", raw, 0)
}

func benchmarkFinder(b *testing.B, kind string, raw []byte, want int) {
	f := For(schema.GroupKind{Kind: kind})
	b.SetBytes(int64(len(raw)))
	b.ReportAllocs()
	for b.Loop() {
		if found, _ := f.Find("shop", raw); len(found) != want {
			b.Fatal(found)
		}
	}
}
