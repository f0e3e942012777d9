package restore_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
)

const (
	leasePath = "/apis/coordination.k8s.io/v1/namespaces/a/leases/operator"
	lockPath  = "/api/v1/namespaces/a/configmaps/lock"
)

// An operator that came back waited for a leader of the old cluster.
func TestTheHolderOfALockIsCleared(t *testing.T) {
	s, b := kubetest.Start(t), &backup{}
	s.Serve("coordination.k8s.io/v1", "leases", "Lease", true)
	b.addObject("leases.coordination.k8s.io", "coordination.k8s.io/v1", "Lease", "a", "operator", object{"spec": object{
		"holderIdentity": "operator-x_1", "acquireTime": "t", "renewTime": "t", "leaseDurationSeconds": 3600.0, "leaseTransitions": 7.0}})
	b.addObject("configmaps", "v1", "ConfigMap", "a", "lock", object{"metadata": object{"annotations": object{
		"control-plane.alpha.kubernetes.io/leader": `{"holderIdentity":"operator-x"}`, "mine": "1"}}})
	b.addObject("configmaps", "v1", "ConfigMap", "a", "patroni", object{"data": object{"k": "v"}, "metadata": object{"annotations": object{
		"leader": "pg-0", "renewTime": "t", "acquireTime": "t", "ttl": "30", "optime": "1"}}})
	b.addObject("configmaps", "v1", "ConfigMap", "a", "plain", object{"metadata": object{"annotations": object{"leader": "me"}}})
	f := runRestore(t, s, b, velerov1.RestoreSpec{})
	require.Empty(t, f.results.Errors.allMessages())
	require.Empty(t, f.results.Warnings.allMessages())
	require.Equal(t, object{"leaseDurationSeconds": 3600.0, "leaseTransitions": 7.0}, s.Object(leasePath)["spec"])
	require.Equal(t, object{"mine": "1"}, kubetest.Meta(s.Object(lockPath))["annotations"])
	patroni := s.Object("/api/v1/namespaces/a/configmaps/patroni")
	require.Equal(t, object{"ttl": "30", "optime": "1"}, kubetest.Meta(patroni)["annotations"])
	require.Equal(t, object{"k": "v"}, patroni["data"])
	require.Equal(t, object{"leader": "me"}, kubetest.Meta(s.Object("/api/v1/namespaces/a/configmaps/plain"))["annotations"])

	held := object{"holderIdentity": "operator-y_2", "acquireTime": "u", "renewTime": "u", "leaseDurationSeconds": 15.0, "leaseTransitions": 8.0}
	s.Change(leasePath, func(o map[string]any) { o["spec"] = held })
	s.Change(lockPath, func(o map[string]any) {
		kubetest.Meta(o)["annotations"] = object{"control-plane.alpha.kubernetes.io/leader": `{"holderIdentity":"operator-y"}`}
	})
	before := s.Content()
	f = runRestore(t, s, b, velerov1.RestoreSpec{IncludedResources: []string{"leases", "configmaps"}, ExistingResourcePolicy: velerov1.PolicyTypeUpdate})
	require.Empty(t, f.results.Warnings.allMessages())
	require.Equal(t, []string{"a/operator(skipped)"}, f.list["coordination.k8s.io/v1/Lease"])
	for _, path := range []string{leasePath, lockPath} {
		require.Equal(t, before[path], s.Content()[path], "a live lock is left as it is")
	}
}

// The lock of an operator's Pod came back without its owner, and nobody released it.
func TestALockOfAPodThatDoesNotComeBack(t *testing.T) {
	withoutPods := velerov1.RestoreSpec{ExcludedResources: []string{"pods"}}
	for name, tt := range map[string]struct {
		spec    velerov1.RestoreSpec
		phase   string // of the Pod in the backup
		live    string // UID of the Pod in the cluster
		lock    object
		created bool
	}{
		"restored":              {phase: "Running", created: true},
		"left out":              {spec: withoutPods, phase: "Running"},
		"ended":                 {phase: "Failed"},
		"live":                  {spec: withoutPods, phase: "Running", live: "old-operator", created: true},
		"another of its name":   {spec: withoutPods, phase: "Running", live: "new"},
		"left out, with data":   {spec: withoutPods, phase: "Running", lock: object{"data": object{"k": "v"}}, created: true},
		"left out, binary data": {spec: withoutPods, phase: "Running", lock: object{"binaryData": object{"k": "dg=="}}, created: true},
	} {
		t.Run(name, func(t *testing.T) {
			s, b := kubetest.Start(t), &backup{}
			if tt.live != "" {
				s.Put("/api/v1/namespaces/a", object{"metadata": object{"name": "a"}})
				s.Put("/api/v1/namespaces/a/pods/operator", object{"metadata": object{"name": "operator", "uid": tt.live}})
			}
			b.addObject("pods", "v1", "Pod", "a", "operator", object{"status": object{"phase": tt.phase}})
			b.addObject("configmaps", "v1", "ConfigMap", "a", "lock", tt.lock, ownerBy("v1", "Pod", "operator", false))
			f := runRestore(t, s, b, tt.spec)
			require.Empty(t, f.results.Errors.allMessages())
			if tt.created {
				require.Equal(t, []string{"a/lock(created)"}, f.list["v1/ConfigMap"])
				return
			}
			require.Equal(t, []string{"a/lock(skipped)"}, f.list["v1/ConfigMap"])
			require.Contains(t, f.results.Warnings.allMessages(), "it is a lock of Pod operator, which is neither restored nor in the cluster")
		})
	}
}
