package moverpod

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// authoritiesDir is where a mover has the certificate authorities of Settings.
const authoritiesDir = "/ca-certificates"

// environmentKey is that of the value of a variable in the Secret of a mover Pod.
func environmentKey(name string) string { return "env." + name }

// addEnvironment gives a mover Pod the variables of Settings, whose values may be credentials and are in its Secret,
// and the certificate authorities, which it trusts beside those of the image.
func addEnvironment(spec *corev1.PodSpec, s Settings, secret string) {
	c := &spec.Containers[0]
	for _, name := range slices.Sorted(maps.Keys(s.Environment)) {
		c.Env = append(c.Env, corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: secret}, Key: environmentKey(name),
		}}})
	}
	if s.Authorities == (corev1.VolumeSource{}) {
		return
	}
	spec.Volumes = append(spec.Volumes, corev1.Volume{Name: "ca-certificates", VolumeSource: s.Authorities})
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "ca-certificates", MountPath: authoritiesDir, ReadOnly: true})
	c.Env = append(c.Env, corev1.EnvVar{Name: "SSL_CERT_DIR", Value: "/etc/ssl/certs:" + authoritiesDir})
}
