//go:build node

package install

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/fleet"
	"github.com/holdfast-io/holdfast/e2e/harness/node"
)

// testPolicies compares the connections that the node has seen with the NetworkPolicies of the chart,
// which nothing enforces here: each connection to a Pod of the release is one that they allow. The
// node itself, where probes come from, is not restricted.
func (b *bed) testPolicies(t *testing.T) {
	list, rules := &corev1.PodList{}, &networkingv1.NetworkPolicyList{}
	require.NoError(t, b.client.List(t.Context(), list, client.InNamespace(server)))
	require.NoError(t, b.client.List(t.Context(), rules, client.InNamespace(server)))
	pods := map[string]*corev1.Pod{}
	for i := range list.Items {
		pods[list.Items[i].Status.PodIP] = &list.Items[i]
	}
	connections, err := node.Connections(b.dir)
	require.NoError(t, err)
	reach := map[string]bool{} // services that reach NATS
	for c := range connections {
		from, to := pods[c.Client], pods[c.Server]
		if from == nil || to == nil {
			continue
		}
		client, server := from.Labels["app.kubernetes.io/component"], to.Labels["app.kubernetes.io/component"]
		if !reach[client+" "+server+" "+c.Port] {
			t.Logf("%s reaches port %s of %s", client, c.Port, server)
		}
		reach[client+" "+server+" "+c.Port] = true
		require.True(t, policiesAllow(t, rules.Items, from, to, c.Port), "%s reaches port %s of %s", from.Name, c.Port, to.Name)
	}
	for _, service := range fleet.Services {
		require.True(t, reach[service+" nats 4222"], "%s is connected to NATS", service)
		for _, pod := range b.servicePods(t, service) {
			for _, other := range b.servicePods(t, "nats") {
				require.False(t, policiesAllow(t, rules.Items, other, pod, "1"), "a port that nothing serves")
			}
		}
	}
}

// policiesAllow reports whether policies let a Pod reach a port of another one in the same namespace.
func policiesAllow(t *testing.T, policies []networkingv1.NetworkPolicy, from, to *corev1.Pod, port string) bool {
	t.Helper()
	selected := false
	for i := range policies {
		policy := &policies[i]
		if !selectsPod(t, &policy.Spec.PodSelector, to) {
			continue
		}
		selected = true
		for _, rule := range policy.Spec.Ingress {
			if opensPort(rule.Ports, to, port) && admitsPod(t, rule.From, from) {
				return true
			}
		}
	}
	return !selected
}

func opensPort(ports []networkingv1.NetworkPolicyPort, pod *corev1.Pod, port string) bool {
	for _, p := range ports {
		if p.Port.String() == port {
			return true
		}
		for _, container := range pod.Spec.Containers {
			for _, named := range container.Ports {
				if named.Name == p.Port.StrVal && strconv.Itoa(int(named.ContainerPort)) == port {
					return true
				}
			}
		}
	}
	return len(ports) == 0
}

func admitsPod(t *testing.T, peers []networkingv1.NetworkPolicyPeer, pod *corev1.Pod) bool {
	t.Helper()
	for _, peer := range peers {
		require.Nil(t, peer.NamespaceSelector, "peers of the chart are Pods of its namespace")
		require.Nil(t, peer.IPBlock)
		if selectsPod(t, peer.PodSelector, pod) {
			return true
		}
	}
	return len(peers) == 0
}

func selectsPod(t *testing.T, selector *metav1.LabelSelector, pod *corev1.Pod) bool {
	t.Helper()
	s, err := metav1.LabelSelectorAsSelector(selector)
	require.NoError(t, err)
	return s.Matches(labels.Set(pod.Labels))
}
