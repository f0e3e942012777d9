package moverpod_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/holdfast-io/holdfast/services/volume-mover/internal/moverpod"
)

// A mover behind a proxy, or before a bucket with a certificate of the company's, reaches it as the services do. The
// URL of a proxy may have a password, which whoever reads Pods does not see.
func TestAMoverHasTheProxyAndTheAuthoritiesOfTheInstallation(t *testing.T) {
	s := moverpod.Settings{
		Namespace: "velero", Image: "mover:1", Environment: map[string]string{"HTTPS_PROXY": "http://user:secret@proxy:3128", "NO_PROXY": ".svc"},
		Authorities: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "authorities"}}},
	}
	for name, m := range map[string]moverpod.Mover{"with a volume": {Name: "m", Node: "node-1", Directory: "/d"}, "without one": {Name: "m"}} {
		t.Run(name, func(t *testing.T) {
			pod := moverpod.BuildPod(s, m)
			secret, err := moverpod.BuildSecret(t.Context(), fake.NewClientBuilder().Build(), s, pod, newLocation(), []byte("password"))
			require.NoError(t, err)
			c := pod.Spec.Containers[0]
			have := map[string]string{}
			for _, v := range c.Env {
				have[v.Name] = v.Value
				if v.ValueFrom != nil {
					require.Equal(t, secret.Name, v.ValueFrom.SecretKeyRef.Name)
					have[v.Name] = string(secret.Data[v.ValueFrom.SecretKeyRef.Key])
				}
			}
			require.Equal(t, map[string]string{"HTTPS_PROXY": "http://user:secret@proxy:3128", "NO_PROXY": ".svc", "SSL_CERT_DIR": "/etc/ssl/certs:/ca-certificates", "TMPDIR": "/cache"}, have)
			require.NotContains(t, pod.String(), "user:secret")
			require.Contains(t, c.VolumeMounts, corev1.VolumeMount{Name: "ca-certificates", MountPath: "/ca-certificates", ReadOnly: true})
			require.Contains(t, pod.Spec.Volumes, corev1.Volume{Name: "ca-certificates", VolumeSource: s.Authorities})
		})
	}
}
