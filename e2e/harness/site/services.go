package site

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/fleet"
	"github.com/holdfast-io/holdfast/e2e/harness/gate"
	"github.com/holdfast-io/holdfast/e2e/harness/product"
	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// Dial connects to the first process of a service, without TLS unless the options ask for it.
func (s *Site) Dial(t *testing.T, service string, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	options = append([]grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}, options...)
	connection, err := grpc.NewClient(s.Fleet.Of(service)[0].GRPC, options...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, connection.Close()) })
	return connection
}

// CLI is the command line, as an administrator of the site's cluster runs it.
func (s *Site) CLI(t *testing.T) *product.CLI {
	t.Helper()
	binary, err := testbed.Product("holdfast")
	require.NoError(t, err)
	return &product.CLI{Binary: binary, Kubeconfig: s.Cluster.Kubeconfig(), Namespace: Server, Output: t.Output()}
}

// Kill ends the first process of a service as a crash would, and returns when another one is ready.
func (s *Site) Kill(t *testing.T, service string) {
	t.Helper()
	s.Fleet.Of(service)[0].Kill()
	_, err := s.Fleet.Revive(t.Context())
	require.NoError(t, err)
}

// Holder returns the process that has the claim of a restore.
func (s *Site) Holder(t *testing.T, restore string) *fleet.Member {
	t.Helper()
	held := &velerov1.Restore{}
	require.NoError(t, s.Client.Get(t.Context(), client.ObjectKey{Namespace: Server, Name: restore}, held))
	for _, m := range s.Fleet.Of("restore-runner") {
		if strings.Contains(held.Annotations["holdfast.io/claim"], m.GRPC) {
			return m
		}
	}
	require.Fail(t, "the restore has no holder", held.Annotations)
	return nil
}

// BackupCompletes waits for the end of a backup, which is to be Completed.
func (s *Site) BackupCompletes(t *testing.T, name string) *velerov1.Backup {
	t.Helper()
	backup := s.BackupEnds(t, name)
	require.Equal(t, velerov1.BackupPhaseCompleted, backup.Status.Phase, "%s: %s", name, backup.Status.FailureReason)
	return backup
}

// DeleteBackup deletes a backup as `velero backup delete` does, and waits until this very object is gone.
func (s *Site) DeleteBackup(t *testing.T, name string) {
	t.Helper()
	backup := s.BackupEnds(t, name)
	request := &velerov1.DeleteBackupRequest{
		ObjectMeta: metav1.ObjectMeta{Namespace: Server, GenerateName: name + "-", Labels: map[string]string{
			velerov1.LabelBackupUID: string(backup.UID), velerov1.LabelBackupName: name,
		}},
		Spec: velerov1.DeleteBackupRequestSpec{BackupName: name},
	}
	require.NoError(t, s.Client.Create(t.Context(), request))
	require.Eventually(t, func() bool {
		err := s.Client.Get(t.Context(), client.ObjectKeyFromObject(request), request)
		if err == nil && request.Status.Phase == velerov1.DeleteBackupRequestPhaseProcessed && len(request.Status.Errors) > 0 {
			t.Fatalf("deletion of %s: %v", name, request.Status.Errors)
		}
		now := &velerov1.Backup{}
		err = s.Client.Get(t.Context(), client.ObjectKeyFromObject(backup), now)
		return apierrors.IsNotFound(err) || err == nil && now.UID != backup.UID
	}, Patience, Look, "backup %s is deleted", name)
}

// AwaitHeld waits until a request is held at a gate.
func AwaitHeld(t *testing.T, hold *gate.Hold) {
	t.Helper()
	select {
	case <-hold.Reached():
	case <-time.After(Patience):
		require.Fail(t, "no request came to be held")
	}
}

// EventsTell waits until there are Events on the named objects, each given as kind, name and reason.
func (s *Site) EventsTell(t *testing.T, want ...string) {
	t.Helper()
	require.Eventually(t, func() bool {
		list, have := &corev1.EventList{}, map[string]bool{}
		if s.Client.List(t.Context(), list, client.InNamespace(Server)) != nil {
			return false
		}
		for i := range list.Items {
			about := list.Items[i].InvolvedObject
			have[about.Kind+" "+about.Name+" "+list.Items[i].Reason] = true
		}
		return !slices.ContainsFunc(want, func(event string) bool { return !have[event] })
	}, Patience, Look, "Events: %v", want)
}
