package restore_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
)

// A token Secret without its account was created and counted, and Kubernetes deleted it.
func TestATokenWithoutItsAccountStaysOut(t *testing.T) {
	for name, tt := range map[string]struct {
		spec    velerov1.RestoreSpec
		account string
		live    bool // the namespace has the account
		created bool
	}{
		"no account":           {spec: velerov1.RestoreSpec{IncludedResources: []string{"secrets"}}, account: "sa"},
		"restored with it":     {account: "sa", created: true},
		"live":                 {spec: velerov1.RestoreSpec{IncludedResources: []string{"secrets"}}, account: "sa", live: true, created: true},
		"every namespace's":    {spec: velerov1.RestoreSpec{IncludedResources: []string{"secrets"}}, account: "default", created: true},
		"of no account at all": {spec: velerov1.RestoreSpec{IncludedResources: []string{"secrets"}}, created: true},
	} {
		t.Run(name, func(t *testing.T) {
			s, b := kubetest.Start(t), &backup{}
			if tt.live {
				s.Put("/api/v1/namespaces/a", object{"metadata": object{"name": "a"}})
				s.Put("/api/v1/namespaces/a/serviceaccounts/sa", object{"metadata": object{"name": "sa"}})
			}
			secret := object{"type": "Opaque"}
			if tt.account != "" {
				b.addObject("serviceaccounts", "v1", "ServiceAccount", "a", tt.account, nil)
				secret = object{"type": "kubernetes.io/service-account-token", "metadata": object{"annotations": object{"kubernetes.io/service-account.name": tt.account}}}
			}
			b.addObject("secrets", "v1", "Secret", "a", "token", secret)
			f := runRestore(t, s, b, tt.spec)
			require.Empty(t, f.results.Errors.allMessages())
			if tt.created {
				require.Equal(t, []string{"a/token(created)"}, f.list["v1/Secret"])
				return
			}
			require.Equal(t, []string{"a/token(skipped)"}, f.list["v1/Secret"])
			require.Contains(t, f.results.Warnings.allMessages(), "ServiceAccount a/sa, which is neither part of the restore nor in the cluster")
		})
	}
}
