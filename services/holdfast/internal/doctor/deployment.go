package doctor

import (
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// findFlagValue returns the value of a flag in the arguments of a container, and whether it is there.
func findFlagValue(c *corev1.Container, flag string) (string, bool) {
	words := append(append([]string{}, c.Command...), c.Args...)
	for i, word := range words {
		if value, ok := strings.CutPrefix(word, "--"+flag+"="); ok {
			return value, true
		}
		if word == "--"+flag && i+1 < len(words) {
			return words[i+1], true
		}
	}
	return "", false
}

// splitFlag returns the list that a flag of the first container has.
func splitFlag(d *appsv1.Deployment, flag string) []string {
	if len(d.Spec.Template.Spec.Containers) == 0 {
		return nil
	}
	value, _ := findFlagValue(&d.Spec.Template.Spec.Containers[0], flag)
	return strings.Split(value, ",")
}

// serviceAccount is the service account of a Deployment's Pods.
func serviceAccount(d *appsv1.Deployment) string {
	if name := d.Spec.Template.Spec.ServiceAccountName; name != "" {
		return name
	}
	return "default"
}
