package job

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/apis/velero/v2alpha1"
	"github.com/holdfast-io/holdfast/pkg/extension/csisnapshot"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
)

// snapshotEnds is a cluster that notes whose CSI snapshots are removed.
type snapshotEnds struct{ of []csisnapshot.Owner }

func (s *snapshotEnds) End(_ context.Context, of csisnapshot.Owner, _ func(types.NamespacedName) bool) error {
	s.of = append(s.of, of)
	return nil
}

// refuseCalls lets the bucket refuse every call.
func (w *world) refuseCalls() {
	w.store.Inject(func(memstore.Op, string) error { return objectstore.ErrAccess })
}

// A bucket that cannot be read may hold the backup as committed, with the snapshots that it names.
func TestSnapshotsOfABackupThatMayBeCommittedStay(t *testing.T) {
	for name, committing := range map[string]bool{"marked": true, "not marked": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			ends := &snapshotEnds{}
			w.CSI = ends
			b := w.admitBackup(t, "b1", abandonBackup, func(b *velerov1.Backup) {
				if committing {
					require.NoError(t, mark.SetCommitting(b, 1))
				}
			})
			w.refuseCalls()
			require.NoError(t, w.Run(t.Context(), "b1", b.UID))
			require.Equal(t, velerov1.BackupPhaseFailed, w.readBackup(t, b).Status.Phase)
			require.Equal(t, committing, len(ends.of) == 0)
		})
	}
}

// The first holder of a backup removes what its actions made, once it came as far as them.
func TestAFirstHolderThatFailsAfterCollectingEndsItsSnapshots(t *testing.T) {
	for name, collected := range map[string]bool{"after": true, "before": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			ends := &snapshotEnds{}
			w.CSI = ends
			b := w.admitBackup(t, "b1")
			if collected {
				w.beforeObject("/composition", w.refuseCalls)
			} else {
				w.refuseCalls()
			}
			require.NoError(t, w.Run(t.Context(), "b1", b.UID))
			require.Equal(t, velerov1.BackupPhaseFailed, w.readBackup(t, b).Status.Phase)
			require.Equal(t, collected, len(ends.of) == 1)
		})
	}
}

// A Backup object that is deleted while its actions run takes the snapshots with it that only its
// records name; those of one that may have been committed are in the bucket.
func TestADeletedBackupEndsItsSnapshots(t *testing.T) {
	for name, tc := range map[string]struct {
		at    string
		ended int
	}{"before the commit": {"/composition", 1}, "in the commit": {"velero-backup.json", 0}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			ends := &snapshotEnds{}
			w.CSI = ends
			b := w.admitBackup(t, "b1")
			w.beforeObject(tc.at, func() {
				require.NoError(t, w.client.Delete(t.Context(), w.readBackup(t, b)))
				w.instance.LoseClaim()
			})
			require.NoError(t, w.Run(t.Context(), "b1", b.UID))
			require.Len(t, ends.of, tc.ended)
		})
	}
}

// requestEnds is a cluster that notes whose requests of Pod volumes are cancelled.
type requestEnds struct{ of []string }

func (r *requestEnds) ListBackups(context.Context, map[string]string) ([]velerov1.PodVolumeBackup, error) {
	return nil, nil
}

func (r *requestEnds) ListUploads(context.Context, map[string]string) ([]v2alpha1.DataUpload, error) {
	return nil, nil
}

func (r *requestEnds) CancelBackups(_ context.Context, b *velerov1.Backup, _ string) error {
	r.of = append(r.of, b.Name)
	return nil
}

// A backup that cannot write its bucket any more cancels its requests all the same, once its actions
// may have made some.
func TestABackupWithoutBucketCancelsItsRequests(t *testing.T) {
	for name, collected := range map[string]bool{"after collecting": true, "before": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			ends := &requestEnds{}
			w.PodVolumes = ends
			b := w.admitBackup(t, "b1")
			if collected {
				w.beforeObject("/composition", w.refuseCalls)
			} else {
				w.refuseCalls()
			}
			require.NoError(t, w.Run(t.Context(), "b1", b.UID))
			require.Equal(t, velerov1.BackupPhaseFailed, w.readBackup(t, b).Status.Phase)
			require.Equal(t, collected, len(ends.of) == 1)
		})
	}
}
