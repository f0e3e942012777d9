package collect

import (
	"slices"
	"sync"

	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
)

// Result is what was collected: the keys of the checkpoints, one per part, and sums over the parts.
type Result struct {
	Checkpoints             []string
	Items, Warnings, Errors int
	// Operations are what actions began, oldest first.
	Operations []operation.Operation
}

// sealedResults sums up sealed parts. Safe for concurrent use.
type sealedResults struct {
	mu  sync.Mutex
	sum Result
}

// addSealed adds the part that the record under key is about.
func (r *sealedResults) addSealed(key string, p *checkpoint.Part) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sum.Checkpoints = append(r.sum.Checkpoints, key)
	r.sum.Items += p.Items
	r.sum.Warnings += p.Warnings
	r.sum.Errors += p.Errors
}

// recordSealed notes a part that is recorded. A part with log lines alone is no progress: each attempt may write the same lines.
func (r *collectRun) recordSealed(key string, p *checkpoint.Part) {
	r.results.addSealed(key, p)
	if p.Items > 0 && r.job.Progressed != nil {
		r.job.Progressed()
	}
}

// recordedOperations returns the operations of the calls of all holders.
func (r *collectRun) recordedOperations() []operation.Operation {
	return operation.Unique(slices.Concat(r.past.Calls.Operations(), r.intents.Begun()))
}

// countOperations counts the operations that earlier holders began.
func (r *collectRun) countOperations() *operation.Counter {
	c := &operation.Counter{}
	for _, op := range operation.Unique(r.past.Calls.Operations()) {
		c.AddOperation(len(op.PostOperation))
	}
	return c
}
