package server

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
	manifestv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/manifest/v1"
)

// verifyStream keeps what is sent.
type verifyStream struct {
	grpc.ServerStream
	ctx  context.Context //nolint:containedctx // a stream has one
	sent []*manifestv1.VerifyBackupResponse
}

func (v *verifyStream) Context() context.Context { return v.ctx }
func (v *verifyStream) Send(r *manifestv1.VerifyBackupResponse) error {
	v.sent = append(v.sent, r)
	return nil
}

func (b *bed) verify(backup string) (*manifestv1.VerifyResult, error) {
	stream := &verifyStream{ctx: b.t.Context()}
	if err := b.s.VerifyBackup(&manifestv1.VerifyBackupRequest{Backup: backup}, stream); err != nil {
		return nil, err
	}
	return stream.sent[len(stream.sent)-1].GetResult(), nil
}

func TestVerifyBackup(t *testing.T) {
	b := newVeleroBed(t)
	result, err := b.verify("b")
	require.NoError(t, err)
	require.Zero(t, result.GetFound(), result.GetFaults())
	require.EqualValues(t, 38, result.GetObjects())
	require.False(t, result.GetRebuilt())

	result, err = b.verify("velero-made")
	require.NoError(t, err)
	require.Zero(t, result.GetFound(), result.GetFaults())
	require.EqualValues(t, 31, result.GetObjects())
	require.True(t, result.GetRebuilt())
	b.store.Set(layout.BackupTarball("velero-made"), packVelero(t, 30)[:1000])
	result, err = b.verify("velero-made")
	require.NoError(t, err)
	require.EqualValues(t, 1, result.GetFound())
	require.Equal(t, manifestv1.FaultKind_FAULT_KIND_UNREADABLE, result.GetFaults()[0].GetKind())

	tar, _ := b.store.Bytes(layout.BackupTarball("b"))
	b.store.Set(layout.BackupTarball("b"), tar[:len(tar)/2])
	result, err = b.verify("b")
	require.NoError(t, err)
	require.NotZero(t, result.GetFound())

	b.store.Inject(func(memstore.Op, string) error { return objectstore.ErrAccess })
	_, err = b.verify("b")
	require.ErrorIs(t, err, errgrpc.ErrUnavailable)
}

// A damaged manifest is told, wherever the damage is, and the tarball is compared all the same.
func TestVerifyTellsADamagedManifest(t *testing.T) {
	for name, spoil := range map[string]func([]byte) []byte{
		"end": func(m []byte) []byte { return m[:len(m)-10] },
		"inside": func(m []byte) []byte {
			for i := 300; i < 320; i++ {
				m[i] ^= 0x55
			}
			return m
		},
	} {
		b := newBed(t)
		whole, _ := b.store.Bytes(layout.BackupManifest("b"))
		b.store.Set(layout.BackupManifest("b"), spoil(whole))
		result, err := b.verify("b")
		require.NoError(t, err, name)
		require.EqualValues(t, 1, result.GetFound(), "%s: %v", name, result.GetFaults())
		require.Equal(t, manifestv1.FaultKind_FAULT_KIND_MANIFEST, result.GetFaults()[0].GetKind())
		require.EqualValues(t, 38, result.GetObjects())
	}
	require.ErrorIs(t, damagedError(manifest.ErrCorrupt), errgrpc.ErrCorrupt)
}

// A backup of which nothing is left in the bucket is damaged as much as a backup can be.
func TestVerifyTellsAMissingTarball(t *testing.T) {
	b := newVeleroBed(t)
	require.NoError(t, b.store.Delete(t.Context(), layout.BackupTarball("velero-made")))
	c, _ := b.s.Reader.(client.Client)
	for phase, want := range map[velerov1.BackupPhase]bool{
		velerov1.BackupPhaseCompleted: true, velerov1.BackupPhasePartiallyFailed: true,
		velerov1.BackupPhaseFailed: false, velerov1.BackupPhaseInProgress: false, velerov1.BackupPhaseDeleting: false,
	} {
		backup := newBackup("velero-made")
		require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(backup), backup))
		backup.Status.Phase = phase
		require.NoError(t, c.Update(t.Context(), backup))
		result, err := b.verify("velero-made")
		if !want {
			require.ErrorIs(t, err, errgrpc.ErrNotFound, phase)
			continue
		}
		require.NoError(t, err, phase)
		require.EqualValues(t, 1, result.GetFound())
		require.Contains(t, result.GetFaults()[0].GetDetail(), "the tarball is missing")
	}
}
