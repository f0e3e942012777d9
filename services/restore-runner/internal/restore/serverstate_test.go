package restore_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
)

// A restore of the whole cluster with policy update put the ledger's counter back, and a restored
// DeleteBackupRequest, which has lost its status, deleted a backup once more.
func TestTheServersOwnStateIsNotRestored(t *testing.T) {
	s, b := kubetest.Start(t), &backup{}
	s.Serve("coordination.k8s.io/v1", "leases", "Lease", true)
	for _, kind := range [][2]string{{"schedules", "Schedule"}, {"deletebackuprequests", "DeleteBackupRequest"}, {"backupstoragelocations", "BackupStorageLocation"}} {
		s.Serve("velero.io/v1", kind[0], kind[1], true)
	}
	s.Put("/api/v1/namespaces/velero", object{"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": "velero"}})
	ledger := object{"apiVersion": "v1", "kind": "ConfigMap", "metadata": object{"name": "holdfast-queue", "namespace": "velero"}, "data": object{"sequence": "62"}}
	s.Put("/api/v1/namespaces/velero/configmaps/holdfast-queue", ledger)
	b.addObject("configmaps", "v1", "ConfigMap", "velero", "holdfast-queue", object{"data": object{"sequence": "59"}})
	b.addObject("configmaps", "v1", "ConfigMap", "velero", "holdfast-settings", object{"data": object{"concurrent-backups": "2"}})
	b.addObject("configmaps", "v1", "ConfigMap", "app", "holdfast-queue", object{"data": object{"mine": "1"}})
	b.addObject("secrets", "v1", "Secret", "velero", "holdfast-artifact-key", nil)
	b.addObject("secrets", "v1", "Secret", "velero", "cloud-credentials", nil)
	b.addObject("leases.coordination.k8s.io", "coordination.k8s.io/v1", "Lease", "velero", "holdfast-duty-queue", nil)
	b.addObject("leases.coordination.k8s.io", "coordination.k8s.io/v1", "Lease", "velero", "runner-0", object{"metadata": object{"labels": object{"holdfast.io/lease": "instance"}}})
	b.addObject("leases.coordination.k8s.io", "coordination.k8s.io/v1", "Lease", "velero", "other", nil)
	b.addObject("deletebackuprequests.velero.io", "velero.io/v1", "DeleteBackupRequest", "velero", "b-1", object{"spec": object{"backupName": "b"}})
	b.addObject("backupstoragelocations.velero.io", "velero.io/v1", "BackupStorageLocation", "velero", "default", nil)
	b.addObject("schedules.velero.io", "velero.io/v1", "Schedule", "velero", "daily", object{"metadata": object{"annotations": object{
		"holdfast.io/pending-slot": "2026-01-01T00:00:00Z", "holdfast.io/active-schedule": "@daily", "holdfast.io/catch-up": "true"}}})

	f := runRestore(t, s, b, velerov1.RestoreSpec{ExistingResourcePolicy: velerov1.PolicyTypeUpdate})
	require.Empty(t, f.results.Errors.allMessages())
	require.Empty(t, f.results.Warnings.allMessages())
	require.Equal(t, map[string][]string{
		"v1/ConfigMap":                       {"app/holdfast-queue(created)", "velero/holdfast-queue(skipped)", "velero/holdfast-settings(created)"},
		"v1/Secret":                          {"velero/cloud-credentials(created)", "velero/holdfast-artifact-key(skipped)"},
		"coordination.k8s.io/v1/Lease":       {"velero/holdfast-duty-queue(skipped)", "velero/other(created)", "velero/runner-0(skipped)"},
		"velero.io/v1/DeleteBackupRequest":   {"velero/b-1(skipped)"},
		"velero.io/v1/BackupStorageLocation": {"velero/default(created)"},
		"velero.io/v1/Schedule":              {"velero/daily(created)"},
	}, f.list)
	require.Equal(t, object{"sequence": "62"}, s.Object("/api/v1/namespaces/velero/configmaps/holdfast-queue")["data"])
	daily := "/apis/velero.io/v1/namespaces/velero/schedules/daily"
	require.Equal(t, object{"holdfast.io/catch-up": "true"}, kubetest.Meta(s.Object(daily))["annotations"])

	// What the scheduler noted meanwhile is not turned back.
	live := s.Object(daily)
	live["spec"] = object{"schedule": "@hourly"}
	kubetest.Meta(live)["annotations"] = object{"holdfast.io/catch-up": "true", "holdfast.io/pending-slot": "now"}
	s.Put(daily, live)
	f = runRestore(t, s, b, velerov1.RestoreSpec{ExistingResourcePolicy: velerov1.PolicyTypeUpdate})
	require.Equal(t, []string{"velero/daily(updated)"}, f.list["velero.io/v1/Schedule"])
	require.Equal(t, object{"holdfast.io/catch-up": "true", "holdfast.io/pending-slot": "now"}, kubetest.Meta(s.Object(daily))["annotations"])
}
