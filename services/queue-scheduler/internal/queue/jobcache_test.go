package queue_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/services/queue-scheduler/internal/queue"
)

// indexing is a cache whose index can only be added while the API server answers.
type indexing struct {
	cache.Cache

	away    bool
	indexes int
	extract client.IndexerFunc
}

func (i *indexing) IndexField(_ context.Context, _ client.Object, _ string, extract client.IndexerFunc) error {
	if i.away {
		return errDown
	}
	i.indexes++
	i.extract = extract
	return nil
}

func (i *indexing) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

// A service starts while the API server is away: the index of unfinished jobs is added once, with
// the first list that succeeds.
func TestUnfinishedJobsAreIndexedWithTheFirstList(t *testing.T) {
	c := &indexing{away: true}
	jobs := queue.NewJobCache(c)
	require.ErrorIs(t, jobs.List(t.Context(), &velerov1.BackupList{}), errDown)
	c.away = false
	for range 2 {
		require.NoError(t, jobs.List(t.Context(), &velerov1.BackupList{}))
		require.NoError(t, jobs.List(t.Context(), &velerov1.RestoreList{}))
	}
	require.Equal(t, 2, c.indexes, "of two kinds")
	b := &velerov1.Backup{}
	require.NotEmpty(t, c.extract(b))
	b.Status.Phase = velerov1.BackupPhaseCompleted
	require.Empty(t, c.extract(b))
}
