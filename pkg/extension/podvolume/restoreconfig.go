package podvolume

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// NameVelero is Velero's name of the action that adds the init container: the ConfigMap of that action
// is obeyed.
const NameVelero = "velero.io/pod-volume-restore"

// ErrWaitConfig means that the ConfigMap of the init container cannot be used.
var ErrWaitConfig = errors.New("invalid configuration of the init container " + WaitContainer)

// WaitConfig is what a ConfigMap says about the init container.
type WaitConfig struct {
	requests, limits body
	fixed            bool // the ConfigMap has some of these
	security         body // nil is that of the Pod
}

// What the init container may use, unless the ConfigMap says otherwise (Velero 1.18).
const (
	waitCPU    = "100m"
	waitMemory = "128Mi"
)

// ParseWaitConfig reads the data of a ConfigMap; nil is the default. The keys are Velero 1.18's. Its image
// and command are those of another program, and are left alone.
func ParseWaitConfig(data map[string]string) (*WaitConfig, error) {
	c := &WaitConfig{
		requests: body{"cpu": cmp.Or(data["cpuRequest"], waitCPU), "memory": cmp.Or(data["memRequest"], waitMemory)},
		limits:   body{"cpu": cmp.Or(data["cpuLimit"], waitCPU), "memory": cmp.Or(data["memLimit"], waitMemory)},
	}
	for _, key := range []string{"cpuRequest", "memRequest", "cpuLimit", "memLimit"} {
		if _, err := resource.ParseQuantity(cmp.Or(data[key], "0")); err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrWaitConfig, key, err)
		}
		c.fixed = c.fixed || data[key] != ""
	}
	err := c.parseSecurity(data)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrWaitConfig, err)
	}
	return c, nil
}

func (c *WaitConfig) parseSecurity(data map[string]string) error {
	var typed corev1.SecurityContext
	err := errors.Join(
		setFrom(data, "secCtxRunAsUser", &typed.RunAsUser, parseID), setFrom(data, "secCtxRunAsGroup", &typed.RunAsGroup, parseID),
		setFrom(data, "secCtxAllowPrivilegeEscalation", &typed.AllowPrivilegeEscalation, strconv.ParseBool),
		yaml.UnmarshalStrict([]byte(data["secCtx"]), &typed),
	)
	if err != nil {
		return err
	}
	security, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&typed)
	if len(security) > 0 {
		c.security = security
	}
	return err
}

func parseID(text string) (int64, error) { return strconv.ParseInt(text, 10, 64) }

// setFrom sets a field to the value of a key, if there is one.
func setFrom[T any](data map[string]string, key string, field **T, parse func(string) (T, error)) error {
	if data[key] == "" {
		return nil
	}
	value, err := parse(data[key])
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	*field = &value
	return nil
}

// resourcesOf returns what the init container may use. Unless the ConfigMap says so it is no less than what the container
// has that uses the volume: limits of the namespace take both then, and the Pod requests no more.
func (c *WaitConfig) resourcesOf(user body) body {
	requests, limits, own := maps.Clone(c.requests), maps.Clone(c.limits), mapAt(user, "resources")
	for name := range requests {
		if !c.fixed {
			requests[name] = largerOf(requests[name], mapAt(own, "requests")[name])
			limits[name] = largerOf(largerOf(limits[name], mapAt(own, "limits")[name]), requests[name])
		}
	}
	return body{"requests": requests, "limits": limits}
}

// largerOf returns the larger one of two quantities. The second may be none.
func largerOf(a, b any) any {
	x, errX := resource.ParseQuantity(fmt.Sprint(a))
	if y, errY := resource.ParseQuantity(fmt.Sprint(b)); errX == nil && errY == nil && y.Cmp(x) > 0 {
		return b
	}
	return a
}
