// Package site is what scenarios about disturbed services run on: a cluster with the services on it
// as separate processes, buckets whose content can be compared, and the history of every job.
package site

import (
	"maps"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/holdfast-io/holdfast/e2e/harness/chart"
	"github.com/holdfast-io/holdfast/e2e/harness/fleet"
	"github.com/holdfast-io/holdfast/e2e/harness/seed"
	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
	"github.com/holdfast-io/holdfast/pkg/apis/crds"
	"github.com/holdfast-io/holdfast/pkg/kube"
)

const (
	// Server is the server namespace.
	Server = "velero"
	// Patience bounds every wait.
	Patience = testbed.Patience
	// Look is the time between two checks of a condition.
	Look = 50 * time.Millisecond
)

// Config is what runs on a site.
type Config struct {
	Replicas int                 // of each service
	Counts   map[string]int      // of single services, in place of Replicas
	Args     map[string][]string // further flags by service
	// Cluster changes how the cluster is started; nil changes nothing.
	Cluster func(*testbed.Config)
	// Identities are further arguments of helm template: each service runs under its own account
	// with the roles of the chart that is rendered with them.
	Identities []string
	// AdmissionRefuses says that admission and quotas refuse the services requests on purpose.
	AdmissionRefuses bool
	// Arrange is called when the cluster and the accounts are there and the services are not, and
	// returns flags in addition to Args; nil returns none.
	Arrange func(*Site) map[string][]string
}

// Site is a cluster with the services on it.
type Site struct {
	Cluster  *testbed.Cluster
	Fleet    *fleet.Fleet
	Client   client.Client
	History  *History
	Audit    *chart.Audit
	Accounts map[string]string // the file with the kubeconfig of each service
}

// Start starts a cluster and the services for a test, and stops both when the test is done. The test
// fails when the API server refuses a service anything, and leaves what it allowed for
// bin/e2e/rights.
func Start(t *testing.T, config Config) *Site {
	t.Helper()
	s := &Site{Audit: chart.NewAudit(t, Server)}
	s.Audit.AdmissionRefuses = config.AdmissionRefuses
	options := []func(*testbed.Config){s.Audit.Configure}
	if config.Cluster != nil {
		options = append(options, config.Cluster)
	}
	s.Cluster = testbed.StartT(t, options...)
	require.NoError(t, crds.Install(t.Context(), s.Cluster.RestConfig()))
	var err error
	s.Client, err = client.New(s.Cluster.RestConfig(), client.Options{Scheme: kube.Scheme()})
	require.NoError(t, err)
	s.Namespace(t, Server)
	ctrllog.SetLogger(logr.Discard()) // drops what informers log about outages
	s.History = watchJobs(t, s.Cluster.RestConfig())
	s.Accounts = chart.Identities(t, s.Cluster, s.Client, Server, config.Identities...)
	t.Cleanup(func() { s.Audit.RefusedNothing(t) })
	config.Args = mergeFlags(accountFlags(s.Accounts), config.Args)
	if config.Arrange != nil {
		config.Args = mergeFlags(config.Args, config.Arrange(s))
	}
	s.Fleet, err = fleet.Start(t.Context(), fleet.Config{
		Dir: t.TempDir(), Kubeconfig: s.Cluster.Kubeconfig(), Rest: s.Cluster.RestConfig(), Replicas: config.Replicas,
		Counts: config.Counts, Args: config.Args, Env: []string{testbed.LessCollecting},
	})
	require.NoError(t, err)
	t.Cleanup(s.Fleet.Stop)
	t.Cleanup(func() { s.showLogs(t) })
	return s
}

// accountFlags returns the flag of each service that has it run under its account.
func accountFlags(accounts map[string]string) map[string][]string {
	flags := map[string][]string{}
	for service, kubeconfig := range accounts {
		flags[service] = []string{"--kubeconfig=" + kubeconfig}
	}
	return flags
}

// mergeFlags returns the flags of both; of a flag that both have, that of more holds.
func mergeFlags(args, more map[string][]string) map[string][]string {
	out := maps.Clone(args)
	for service, flags := range more {
		out[service] = append(slices.Clone(out[service]), flags...)
	}
	return out
}

// showLogs adds what every service complained about to the log of a failed test.
func (s *Site) showLogs(t *testing.T) {
	t.Helper()
	if !t.Failed() {
		return
	}
	for _, m := range s.Fleet.Members {
		t.Logf("%s complains:\n%s", filepath.Base(m.LogPath()), testbed.Complaints(m.LogPath(), 8))
	}
}

// Namespace creates a namespace.
func (s *Site) Namespace(t *testing.T, name string) {
	t.Helper()
	require.NoError(t, s.Client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
}

// Estate creates a namespace with plain objects in it, half of them Secrets; count of each, size
// bytes in each.
func (s *Site) Estate(t *testing.T, namespace string, count, size int) {
	t.Helper()
	s.Namespace(t, namespace)
	for _, secrets := range []bool{false, true} {
		require.NoError(t, seed.Bulk(t.Context(), s.Cluster.RestConfig(), seed.BulkOptions{
			Namespace: namespace, Name: namespace, Count: count, Size: size, Secrets: secrets,
		}))
	}
}
