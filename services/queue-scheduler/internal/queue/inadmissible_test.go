package queue_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/jobtest"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/services/queue-scheduler/internal/queue"
)

func (b *bed) createStored(name string, order int, location string, namespaces ...string) {
	b.t.Helper()
	b.createBackup(name, order, namespaces...)
	require.NoError(b.t, kube.Update(b.t.Context(), b.c, b.c, b.getBackup(name), func(o *velerov1.Backup) error {
		o.Spec.StorageLocation = location
		return nil
	}))
}

// One failed probe of a location makes all backups that are queued for it FailedValidation, 200 of
// 200.
func TestBackupsWaitForAnUnavailableLocation(t *testing.T) {
	b := newBed(t, ledger.Limits{Backups: 1}, interceptor.Funcs{})
	s, now := b.newScheduler(), b.clock
	b.createStored("first", 1, "good", "ns3")
	require.NoError(t, s.Pass(t.Context()))
	const many = 20
	for i := range many {
		b.createStored(fmt.Sprintf("waits%d", i), 2+i, "bad", "ns1")
	}
	b.createStored("other", 50, "good", "ns1")
	require.NoError(t, s.Pass(t.Context()))
	b.rules.setAway("bad", `backup storage location "bad" is unavailable: no route`)
	b.createStored("new", 51, "bad", "ns1")
	b.setPhase("first", velerov1.BackupPhaseCompleted)
	require.NoError(t, s.Pass(t.Context()))
	require.NoError(t, s.Pass(t.Context()))
	require.Equal(t, velerov1.BackupPhaseReadyToStart, b.backupPhase("other"), "those that wait for their location are not ahead of it")
	for i := range many {
		require.Equal(t, velerov1.BackupPhaseQueued, b.backupPhase(fmt.Sprintf("waits%d", i)))
	}
	require.Equal(t, velerov1.BackupPhaseQueued, b.backupPhase("new"), "a new one waits too")
	x, err := s.Explain(t.Context(), "waits0")
	require.NoError(t, err)
	require.Len(t, x.Obstacles, 1)
	require.Equal(t, queue.LocationUnavailable, x.Obstacles[0].Reason)
	require.Contains(t, x.Obstacles[0].Message, "no route")
	require.Contains(t, b.voice.allEvents(), `waits0 LocationUnavailable: backup storage location "bad" is unavailable: no route`)

	b.setPhase("other", velerov1.BackupPhaseCompleted)
	b.rules.setAway("bad", "")
	require.NoError(t, s.Pass(t.Context()))
	require.Equal(t, velerov1.BackupPhaseReadyToStart, b.backupPhase("waits0"), "it has kept its place among them")

	b.rules.setAway("bad", "gone again")
	require.NoError(t, s.Pass(t.Context()))
	now.Step(59 * time.Minute)
	require.NoError(t, s.Pass(t.Context()))
	require.Equal(t, velerov1.BackupPhaseQueued, b.backupPhase("waits1"))
	now.Step(time.Minute)
	require.NoError(t, s.Pass(t.Context()))
	require.Equal(t, velerov1.BackupPhaseFailedValidation, b.backupPhase("waits1"))
	require.Equal(t, []string{"spec.storageLocation: gone again", "spec.storageLocation: unavailable for more than 1h0m0s"}, b.getBackup("waits1").Status.ValidationErrors)
	require.NotNil(t, b.getBackup("waits1").Status.Expiration, "without one it is never deleted")
}

// An admission that was cut off keeps a place: its location does not matter to the queue any more.
func TestAnAdmittedBackupDoesNotWaitForItsLocation(t *testing.T) {
	b := newBed(t, ledger.Limits{Backups: 1}, interceptor.Funcs{})
	s := b.newScheduler()
	b.createStored("one", 1, "bad", "ns1")
	b.setPhase("one", velerov1.BackupPhaseQueued)
	require.NoError(t, jobtest.Admit(t.Context(), b.ledger, ledger.Entry{UID: "uid-one", Kind: ledger.KindBackup, Namespace: "velero", Name: "one", Since: start}, ledger.Limits{}))
	b.rules.setAway("bad", "no route")
	require.NoError(t, s.Pass(t.Context()))
	require.Equal(t, velerov1.BackupPhaseReadyToStart, b.backupPhase("one"))
}

// refusingFuncs is an API server whose admission policy denies writes of objects with such a name, in a
// phase if one is given.
func refusingFuncs(prefix string, phase velerov1.BackupPhase) interceptor.Funcs {
	return interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
		backup, ok := o.(*velerov1.Backup)
		if strings.HasPrefix(o.GetName(), prefix) && (phase == "" || ok && backup.Status.Phase == phase) {
			return apierrors.NewForbidden(resource, o.GetName(), errDown)
		}
		return c.Patch(ctx, o, p, opts...)
	}}
}

// New backups that the API server refuses to write are tried first in every pass: once there are as
// many as a pass queues, no other backup is ever queued.
func TestRefusedNewBackupsHoldUpNobody(t *testing.T) {
	b := newBed(t, ledger.Limits{Backups: 1}, refusingFuncs("bad", velerov1.BackupPhaseQueued))
	for i := range queue.EnqueueLimit {
		b.createBackup(fmt.Sprintf("bad%d", i), i, "ns1")
	}
	b.createBackup("good", queue.EnqueueLimit+1, "ns1")
	s, now := b.newScheduler(), b.clock
	require.NoError(t, s.Pass(t.Context()))
	require.NoError(t, s.Pass(t.Context()))
	require.Equal(t, velerov1.BackupPhaseReadyToStart, b.backupPhase("good"))
	require.True(t, b.backupPhase("bad0").IsNew())
	told := strings.Join(b.voice.allEvents(), "\n")
	require.Equal(t, 1, strings.Count(told, "bad0 WriteRefused"), "told once")

	written := b.ledgerVersion()
	require.NoError(t, s.Pass(t.Context()))
	require.Equal(t, written, b.ledgerVersion(), "nor are numbers taken for what is refused")
	now.Step(time.Minute)
	require.NoError(t, s.Pass(t.Context()))
	require.Equal(t, 1, strings.Count(strings.Join(b.voice.allEvents(), "\n"), "bad0 WriteRefused"), "nor told again")
}

// ledgerVersion is the version of the ledger.
func (b *bed) ledgerVersion() string {
	cm := &corev1.ConfigMap{}
	require.NoError(b.t, b.c.Get(b.t.Context(), client.ObjectKey{Namespace: "velero", Name: ledger.Name}, cm))
	return cm.ResourceVersion
}

// A queued backup whose validation cannot be written claims every namespace, and everything behind
// it waits.
func TestARefusedWriteClaimsNothing(t *testing.T) {
	for name, phase := range map[string]velerov1.BackupPhase{
		"ReadyToStart": velerov1.BackupPhaseReadyToStart, "FailedValidation": velerov1.BackupPhaseFailedValidation,
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, ledger.Limits{Backups: 1}, refusingFuncs("bad", phase))
			b.createBackup("bad", 1, "ns1")
			b.createBackup("good", 2, "ns1")
			if phase == velerov1.BackupPhaseFailedValidation {
				b.setPhase("bad", velerov1.BackupPhaseQueued)
				b.rules.refused["bad"] = "wrong"
			}
			s := b.newScheduler()
			for range 3 {
				require.NoError(t, s.Pass(t.Context()))
			}
			require.Equal(t, velerov1.BackupPhaseReadyToStart, b.backupPhase("good"))
			require.Equal(t, []string{"good"}, b.admittedNames(), "no place is held")
			if phase == velerov1.BackupPhaseReadyToStart {
				require.Equal(t, velerov1.BackupPhaseFailedValidation, b.backupPhase("bad"))
				require.Contains(t, b.getBackup("bad").Status.ValidationErrors[0], "the API server refuses to write it")
				require.NotNil(t, b.getBackup("bad").Status.Expiration, "without one it is never deleted")
				require.Empty(t, b.getBackup("bad").Spec.StorageLocation, "the write is small")
			}
		})
	}
}

// A backup that the API server refuses to write in any phase is not ended: its entry in the ledger stays,
// and with it the place and the namespaces.
func TestABackupThatIsNeverWrittenHoldsNoPlace(t *testing.T) {
	var refuses atomic.Bool
	refused := refusingFuncs("bad", "")
	b := newBed(t, ledger.Limits{Backups: 1}, interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
		if refuses.Load() {
			return refused.Patch(ctx, c, o, p, opts...)
		}
		return c.Patch(ctx, o, p, opts...)
	}})
	s := b.newScheduler()
	b.createBackup("first", 0, "ns1")
	b.createBackup("bad", 1, "ns1")
	require.NoError(t, s.Pass(t.Context()))
	b.setPhase("first", velerov1.BackupPhaseCompleted)
	refuses.Store(true)
	b.createBackup("good", 2, "ns1")
	for range 3 {
		require.NoError(t, s.Pass(t.Context()))
	}
	require.Equal(t, []string{"good"}, b.admittedNames())
	require.Equal(t, velerov1.BackupPhaseReadyToStart, b.backupPhase("good"))
	x, err := s.Explain(t.Context(), "bad")
	require.NoError(t, err)
	require.Len(t, x.Obstacles, 1)
	require.Equal(t, queue.WriteRefused, x.Obstacles[0].Reason)
	require.Contains(t, x.Obstacles[0].Message, errDown.Error(), "the text of the refusal")

	refuses.Store(false)
	b.setPhase("good", velerov1.BackupPhaseCompleted)
	b.clock.Step(time.Minute)
	for range 2 {
		require.NoError(t, s.Pass(t.Context()))
	}
	require.Equal(t, []string{"bad"}, b.admittedNames(), "it starts once it is written")
}

// A new restore that cannot be written claims what it would restore to, every namespace where that
// is not known.
func TestARefusedRestoreClaimsNothing(t *testing.T) {
	b := newBed(t, ledger.Limits{Backups: 1, Restores: 1}, refusingFuncs("bad", ""))
	b.createRestore("bad", 1)
	b.createRestore("other", 2, "ns2")
	b.createBackup("good", 3, "ns1")
	s := b.newScheduler()
	require.NoError(t, s.Pass(t.Context()))
	require.NoError(t, s.Pass(t.Context()))
	require.Equal(t, velerov1.BackupPhaseReadyToStart, b.backupPhase("good"))
	require.Equal(t, []string{"good", "other"}, b.admittedNames())
}

// A namespace with the exclude label makes a list of the backup of all namespaces: a restore into a
// namespace that does not exist yet runs beside it.
func TestTheExcludeLabelChangesNoOtherOverlap(t *testing.T) {
	b := newBed(t, ledger.Limits{Backups: 2, Restores: 2}, interceptor.Funcs{})
	b.rules.labelled = []string{"ns2"}
	b.createBackup("all", 1)
	s := b.newScheduler()
	require.NoError(t, s.Pass(t.Context()))
	require.Equal(t, []string{"all"}, b.admittedNames())
	b.createRestore("new", 2, "not-there-yet")
	b.createRestore("labelled", 3, "ns2")
	require.NoError(t, s.Pass(t.Context()))
	require.Equal(t, []string{"all", "labelled"}, b.admittedNames())
	require.Equal(t, `["!ns2","*"]`, b.getBackup("all").Annotations["holdfast.io/namespaces"])
}

// What a filter with patterns selects may be more than the ledger holds.
func TestNamespacesThatDoNotFitFailValidation(t *testing.T) {
	b := newBed(t, ledger.Limits{Backups: 1}, interceptor.Funcs{})
	for i := range 6000 {
		b.rules.addNamespaces(fmt.Sprintf("team-%s-%04d", strings.Repeat("x", 40), i))
	}
	b.createBackup("many", 1, "team-*")
	b.createBackup("rest", 2)
	require.NoError(t, kube.Update(t.Context(), b.c, b.c, b.getBackup("rest"), func(o *velerov1.Backup) error {
		o.Spec.ExcludedNamespaces = []string{"ns1"}
		return nil
	}))
	s := b.newScheduler()
	require.NoError(t, s.Pass(t.Context()))
	require.Equal(t, velerov1.BackupPhaseFailedValidation, b.backupPhase("many"))
	require.Contains(t, b.getBackup("many").Status.ValidationErrors[0], "spec.includedNamespaces: selects 6002 namespaces")
	require.NotNil(t, b.getBackup("many").Status.Expiration, "without one it is never deleted")
	require.Equal(t, "computed", b.getBackup("many").Spec.StorageLocation)
	require.NoError(t, s.Pass(t.Context()))
	require.Equal(t, velerov1.BackupPhaseReadyToStart, b.backupPhase("rest"), "all but one fits")
	require.Equal(t, `["!ns1","*"]`, b.getBackup("rest").Annotations["holdfast.io/namespaces"])
}
