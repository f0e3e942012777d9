package restore_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/archive/reference"
	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore"
)

const (
	rbacGroup   = "rbac.authorization.k8s.io"
	bindingPath = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/agent"
)

func subjectOf(namespace string) object {
	return object{"kind": "ServiceAccount", "name": "agent", "namespace": namespace}
}

// newBound returns a server, and a backup of an account and the binding that names it.
func newBound(t *testing.T) (*kubetest.Server, *backup) {
	t.Helper()
	s, b := kubetest.Start(t), &backup{}
	s.Serve(rbacGroup+"/v1", "clusterrolebindings", "ClusterRoleBinding", false)
	b.addObject("serviceaccounts", "v1", "ServiceAccount", "a", "agent", nil)
	b.addObject("clusterrolebindings."+rbacGroup, rbacGroup+"/v1", "ClusterRoleBinding", "", "agent", object{
		"roleRef": object{"apiGroup": rbacGroup, "kind": "ClusterRole", "name": "agent"}, "subjects": []any{subjectOf("a")}})
	return s, b
}

// putLive puts the objects of a backup into the cluster, changed.
func (b *backup) putLive(t *testing.T, s *kubetest.Server, change func(object)) {
	t.Helper()
	runRestore(t, s, b, velerov1.RestoreSpec{}, func(c *restore.Config) { c.UID = "ffffffff-1f0d-4a44-a1a3-6d0b8a1c9e10" })
	s.Change(bindingPath, change)
}

func copyTo(target string, update bool) velerov1.RestoreSpec {
	spec := velerov1.RestoreSpec{NamespaceMapping: map[string]string{"a": target}}
	if update {
		spec.ExistingResourcePolicy = velerov1.PolicyTypeUpdate
	}
	return spec
}

func TestAccountsOfAMappedNamespaceJoinALiveBinding(t *testing.T) {
	for name, update := range map[string]bool{"none": false, "update": true} {
		t.Run(name, func(t *testing.T) {
			s, b := newBound(t)
			b.putLive(t, s, func(live object) { live["subjects"] = append(live["subjects"].([]any), subjectOf("other")) })
			f := runRestore(t, s, b, copyTo("z", update))
			require.Empty(t, f.results.Errors.allMessages())
			require.Equal(t, `clusterrolebindings.rbac.authorization.k8s.io agent: ClusterRoleBinding "agent" exists already: added ServiceAccount z/agent to its accounts, removed none`,
				f.results.Warnings.allMessages())
			require.Equal(t, []string{"agent(updated)"}, f.list[rbacGroup+"/v1/ClusterRoleBinding"])
			require.Equal(t, []any{subjectOf("a"), subjectOf("other"), subjectOf("z")}, s.Object(bindingPath)["subjects"])

			again := runRestore(t, s, b, copyTo("z", update))
			require.Empty(t, again.results.Warnings.allMessages())
			require.Equal(t, []string{"agent(skipped)"}, again.list[rbacGroup+"/v1/ClusterRoleBinding"])
			runRestore(t, s, b, copyTo("y", update))
			require.Equal(t, []any{subjectOf("a"), subjectOf("other"), subjectOf("z"), subjectOf("y")}, s.Object(bindingPath)["subjects"])
		})
	}
}

func TestALiveBindingThatDiffersOtherwise(t *testing.T) {
	relabel := func(live object) { kubetest.Meta(live)["labels"] = object{"tier": "gold"} }
	const kind = rbacGroup + "/v1/ClusterRoleBinding"
	t.Run("none", func(t *testing.T) {
		s, b := newBound(t)
		b.putLive(t, s, relabel)
		f := runRestore(t, s, b, copyTo("z", false))
		require.Contains(t, f.results.Warnings.allMessages(), "added ServiceAccount z/agent to its accounts, removed none; it differs from the backup otherwise, and is left as it is")
		require.Len(t, s.Object(bindingPath)["subjects"], 2)
		require.Equal(t, object{"tier": "gold"}, kubetest.Meta(s.Object(bindingPath))["labels"])
		again := runRestore(t, s, b, copyTo("z", false))
		require.Contains(t, again.results.Warnings.allMessages(), `could not restore, ClusterRoleBinding "agent" exists already and differs from the backup`)
		require.Equal(t, []string{"agent(failed)"}, again.list[kind])
	})
	t.Run("update", func(t *testing.T) {
		s, b := newBound(t)
		b.putLive(t, s, relabel)
		f := runRestore(t, s, b, copyTo("z", true))
		require.NotContains(t, f.results.Warnings.allMessages(), "differs")
		require.Nil(t, kubetest.Meta(s.Object(bindingPath))["labels"].(object)["tier"])
		require.Len(t, s.Object(bindingPath)["subjects"], 2)
		s.Change(bindingPath, relabel)
		again := runRestore(t, s, b, copyTo("z", true))
		require.Empty(t, again.results.Warnings.allMessages(), "nobody was added")
		require.Equal(t, []string{"agent(updated)"}, again.list[kind])
	})
	t.Run("another role", func(t *testing.T) {
		s, b := newBound(t)
		b.putLive(t, s, func(live object) { live["roleRef"].(object)["name"] = "other" })
		f := runRestore(t, s, b, copyTo("z", true))
		require.Contains(t, f.results.Warnings.allMessages(), `could not restore, ClusterRoleBinding "agent" exists already with ClusterRole other, in the backup with ClusterRole agent: `+
			`it does not bind ServiceAccount z/agent; bind them by hand`)
		require.Equal(t, []any{subjectOf("a")}, s.Object(bindingPath)["subjects"])
	})
	t.Run("refused", func(t *testing.T) {
		s, b := newBound(t)
		b.putLive(t, s, func(object) {})
		s.Fail(func(r *http.Request, _ map[string]any) (int, bool) {
			if r.Method == http.MethodPatch {
				return http.StatusForbidden, false
			}
			return 0, false
		})
		f := runRestore(t, s, b, copyTo("z", false))
		require.Contains(t, f.results.Warnings.allMessages(), `could not restore, ClusterRoleBinding "agent" could not be given ServiceAccount z/agent: `)
	})
}

func TestAccountsThatComeMeanwhileStay(t *testing.T) {
	s, b := newBound(t)
	b.putLive(t, s, func(object) {})
	var once atomic.Bool
	s.Fail(func(r *http.Request, _ map[string]any) (int, bool) {
		if r.Method == http.MethodPatch && once.CompareAndSwap(false, true) {
			s.Change(bindingPath, func(live object) { live["subjects"] = append(live["subjects"].([]any), subjectOf("other")) })
		}
		return 0, false
	})
	f := runRestore(t, s, b, copyTo("z", false))
	require.Equal(t, []any{subjectOf("a"), subjectOf("other"), subjectOf("z")}, s.Object(bindingPath)["subjects"])
	require.Equal(t, []string{"agent(updated)"}, f.list[rbacGroup+"/v1/ClusterRoleBinding"])
}

// The holder before died behind the patch.
func TestASuccessorSaysWhichAccountsWereAdded(t *testing.T) {
	s, b := newBound(t)
	b.putLive(t, s, func(live object) { live["subjects"] = append(live["subjects"].([]any), subjectOf("z")) })
	f := runRestore(t, s, b, copyTo("z", false), func(c *restore.Config) {
		binding, ok := c.Plan.Find("clusterrolebindings."+rbacGroup, "", "agent")
		require.True(t, ok)
		c.History = &outcome.History{Resumed: true, Intents: map[int32]apply.Intent{binding: apply.IntentUpdate}}
	})
	require.Contains(t, f.results.Warnings.allMessages(), "added ServiceAccount z/agent")
	require.Equal(t, []string{"agent(updated)"}, f.list[rbacGroup+"/v1/ClusterRoleBinding"])
}

// webhookBackup has all that the API server calls a Service for.
func webhookBackup(s *kubetest.Server) *backup {
	s.Serve("admissionregistration.k8s.io/v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", false)
	s.Serve("apiregistration.k8s.io/v1", "apiservices", "APIService", false)
	b := &backup{}
	service := object{"namespace": "a", "name": "hook"}
	b.addObject("configmaps", "v1", "ConfigMap", "a", "c", nil)
	b.addObject("validatingwebhookconfigurations.admissionregistration.k8s.io", "admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", "", "hook",
		object{"webhooks": []any{object{"name": "x.example.com", "sideEffects": "None", "clientConfig": object{"service": service}}}})
	b.addObject("apiservices.apiregistration.k8s.io", "apiregistration.k8s.io/v1", "APIService", "", "v1.served.org", object{"spec": object{"service": service}})
	addDefinition(b)
	b.bodies["resources/customresourcedefinitions.apiextensions.k8s.io/cluster/widgets.example.com.json"] = []byte(`{"apiVersion":"apiextensions.k8s.io/v1",
		"kind":"CustomResourceDefinition","metadata":{"name":"widgets.example.com"},"spec":{"group":"example.com","scope":"Namespaced",
		"names":{"plural":"widgets","kind":"Widget"},"versions":[{"name":"v1"}],"conversion":{"webhook":{"clientConfig":{"service":{"namespace":"a","name":"hook"}}}}}}`)
	return b
}

// calledNamespaces are the namespaces of the Services that the API server calls.
func calledNamespaces(s *kubetest.Server) (out []any) {
	at := func(o object, path ...string) object {
		for _, key := range path {
			o, _ = o[key].(object)
		}
		return o
	}
	hooks := s.Object("/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/hook")["webhooks"].([]any)
	return append(out, at(hooks[0].(object), "clientConfig", "service")["namespace"],
		at(s.Object("/apis/apiregistration.k8s.io/v1/apiservices/v1.served.org"), "spec", "service")["namespace"],
		at(s.Object("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com"), "spec", "conversion", "webhook", "clientConfig", "service")["namespace"])
}

func TestCreatedWebhooksCallTheMappedNamespaceAndLiveOnesAreNotRepointed(t *testing.T) {
	s := kubetest.Start(t)
	f := runRestore(t, s, webhookBackup(s), copyTo("z", false))
	require.Equal(t, []any{"z", "z", "z"}, calledNamespaces(s))
	const warning = "the API server calls Service z/hook for it, a/hook in the backup: its certificate must name the new Service, else the calls fail"
	require.Equal(t, 3, strings.Count(f.results.Warnings.allMessages(), warning), f.results.Warnings.allMessages())

	for name, update := range map[string]bool{"none": false, "update": true} {
		t.Run(name, func(t *testing.T) {
			s := kubetest.Start(t)
			b := webhookBackup(s)
			runRestore(t, s, b, velerov1.RestoreSpec{})
			require.Equal(t, []any{"a", "a", "a"}, calledNamespaces(s))
			f := runRestore(t, s, b, copyTo("z", update), func(c *restore.Config) { c.UID = "ffffffff-1f0d-4a44-a1a3-6d0b8a1c9e10" })
			require.Empty(t, f.results.Warnings.allMessages())
			require.Equal(t, []any{"a", "a", "a"}, calledNamespaces(s))
		})
	}
	t.Run("changed since, and not mapped", func(t *testing.T) {
		s := kubetest.Start(t)
		b := webhookBackup(s)
		runRestore(t, s, b, velerov1.RestoreSpec{})
		s.Change("/apis/apiregistration.k8s.io/v1/apiservices/v1.served.org", func(live object) {
			live["spec"].(object)["service"].(object)["namespace"] = "elsewhere"
		})
		runRestore(t, s, b, velerov1.RestoreSpec{ExistingResourcePolicy: velerov1.PolicyTypeUpdate})
		require.Equal(t, []any{"a", "a", "a"}, calledNamespaces(s))
	})
}

// What comes with an account, and not by the filters, makes what is missing: a role is the cluster's.
func TestRightsOfAnAccountAreNoObjectsOfThePolicy(t *testing.T) {
	const rolePath = "/apis/rbac.authorization.k8s.io/v1/clusterroles/agent"
	role := object{"rules": []any{object{"apiGroups": []any{""}, "resources": []any{"nodes"}, "verbs": []any{"list"}}}}
	s, b := newBound(t)
	s.Serve(rbacGroup+"/v1", "clusterroles", "ClusterRole", false)
	b.addObject("clusterroles."+rbacGroup, rbacGroup+"/v1", "ClusterRole", "", "agent", role)
	b.items[0].Labels = map[string]string{"app": "x"}
	b.items[1].References = []manifest.Reference{{Kind: "ServiceAccount", Namespace: "a", Name: "agent", Relation: reference.GrantsTo},
		{Group: rbacGroup, Kind: "ClusterRole", Name: "agent", Relation: reference.Grants}}
	spec := velerov1.RestoreSpec{ExistingResourcePolicy: velerov1.PolicyTypeUpdate, LabelSelector: &metav1.LabelSelector{MatchLabels: b.items[0].Labels}}
	f := runRestore(t, s, b, spec)
	require.Empty(t, f.results.Warnings.allMessages())
	require.Equal(t, []string{"agent(created)"}, f.list[rbacGroup+"/v1/ClusterRole"])
	require.Equal(t, []any{subjectOf("a")}, s.Object(bindingPath)["subjects"])

	s.Change(rolePath, func(live object) { live["rules"] = []any{} })
	s.Change(bindingPath, func(live object) { live["subjects"] = []any{subjectOf("other")} })
	f = runRestore(t, s, b, spec)
	require.Empty(t, s.Object(rolePath)["rules"])
	require.Equal(t, []any{subjectOf("other")}, s.Object(bindingPath)["subjects"])
	require.Equal(t, `clusterrolebindings.rbac.authorization.k8s.io agent: could not restore, ClusterRoleBinding "agent" exists already and differs from the backup`,
		f.results.Warnings.allMessages(), "the account is without its rights")
}
