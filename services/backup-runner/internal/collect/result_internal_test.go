package collect

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
)

// Each attempt at a backup may log the same lines again: a part with lines alone reset the count of panics, so that a backup which
// panics each time never ended.
func TestAPartWithLogLinesAloneIsNoProgress(t *testing.T) {
	progressed := 0
	r := &collectRun{job: Job{Progressed: func() { progressed++ }}}
	r.recordSealed("checkpoint-1-1", &checkpoint.Part{})
	require.Zero(t, progressed)
	r.recordSealed("checkpoint-1-2", &checkpoint.Part{Items: 1})
	require.Equal(t, 1, progressed)
	require.Equal(t, []string{"checkpoint-1-1", "checkpoint-1-2"}, r.results.sum.Checkpoints)
}
