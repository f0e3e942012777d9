package queue_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
	"github.com/holdfast-io/holdfast/pkg/job/validate"
)

// hungBucket is a bucket whose reads fail only when the test lets them.
type hungBucket struct {
	*rules
	failing chan struct{}
}

func (h *hungBucket) Targets(ctx context.Context, _ *velerov1.Restore) ([]string, error) {
	select {
	case <-h.failing:
		return nil, errDown
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Buckets are read beside the passes: one that hangs delays no other job. A restore whose backup
// cannot be read locks all namespaces.
func TestAHungBucketHoldsUpNobodyElse(t *testing.T) {
	b := newBed(t, ledger.Limits{Backups: 5, Restores: 50}, interceptor.Funcs{})
	bucket := &hungBucket{rules: b.rules, failing: make(chan struct{})}
	const total = 10
	for i := range total {
		b.createRestore(fmt.Sprintf("r%02d", i), i)
	}
	b.createBackup("beside", 100, "ns1")
	b.runScheduler(withValidator(bucket))
	b.requirePhase(velerov1.BackupPhaseReadyToStart, "beside")
	require.Equal(t, []string{"beside"}, b.admittedNames())

	close(bucket.failing)
	for i := range total {
		name := fmt.Sprintf("r%02d", i)
		b.requireEventually(name+" is validated", func() bool { return b.getRestore(name).Annotations[holdfast.AnnotationNamespaces] == `["*"]` })
	}
	require.Equal(t, []string{"beside"}, b.admittedNames())
	b.setPhase("beside", velerov1.BackupPhaseCompleted)
	b.requireEventually("the oldest starts", func() bool { return b.wire.hasSent("restore.run r00") })
	require.Equal(t, []string{"r00"}, b.admittedNames())
}

// unreadBackup is a validator whose API server does not answer once, when asked for the backup of a restore.
type unreadBackup struct {
	*rules
	asked atomic.Int32
}

func (u *unreadBackup) Targets(ctx context.Context, r *velerov1.Restore) ([]string, error) {
	switch u.asked.Add(1) {
	case 1:
		return nil, fmt.Errorf("%w: %w", validate.ErrClusterUnread, errDown)
	case 2:
		panic("a defect in reading")
	}
	return []string{"ns1"}, nil
}

// One failed read of the API server locked all namespaces for a restore of one, for good. A panic ends no process.
func TestAFailedReadOfTheClusterIsRepeated(t *testing.T) {
	b := newBed(t, ledger.Limits{Backups: 5, Restores: 5}, interceptor.Funcs{})
	b.createRestore("r", 1)
	u := &unreadBackup{rules: b.rules}
	b.runScheduler(withValidator(u))
	b.requireEventually("r is validated", func() bool { return b.getRestore("r").Annotations[holdfast.AnnotationNamespaces] != "" })
	require.Equal(t, `["ns1"]`, b.getRestore("r").Annotations[holdfast.AnnotationNamespaces])
}
