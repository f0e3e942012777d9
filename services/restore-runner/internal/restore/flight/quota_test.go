package flight

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestWhatAQuotaCounts(t *testing.T) {
	for name, kind := range map[string]string{
		"count/deployments.apps": "deployments.apps", "count/secrets": "secrets", "secrets": "secrets",
		"services": "services", "services.nodeports": "services", "services.loadbalancers": "services",
		"persistentvolumeclaims": "persistentvolumeclaims", "requests.storage": "persistentvolumeclaims",
		"gold.storageclass.storage.k8s.io/requests.storage": "persistentvolumeclaims",
		"cpu": "pods", "limits.memory": "pods", "requests.nvidia.com/gpu": "pods", "hugepages-2Mi": "pods", "pods": "pods",
		"gpu.deviceclass.resource.k8s.io/devices": "resourceclaims.resource.k8s.io",
	} {
		for _, other := range []string{"deployments.apps", "secrets", "services", "persistentvolumeclaims", "pods", "resourceclaims.resource.k8s.io", "pods.metrics.k8s.io"} {
			require.Equal(t, other == kind, countsKind(name, schema.ParseGroupResource(other)), "%s counts %s", name, other)
		}
	}
}
