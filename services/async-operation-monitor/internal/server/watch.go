package server

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/itemoperation"
	"github.com/holdfast-io/holdfast/pkg/errgrpc"
)

// WatchPeriod is the time between two reads of a job that is watched.
const WatchPeriod = time.Second

// State is what there is to know of a job's operations.
type State struct {
	// Phase is that of the job.
	Phase string
	// Operations are all of them, oldest first.
	Operations []itemoperation.Operation
}

// Watch sends the state of a job's operations, and again every period, until the job has ended. The
// bucket is read when the object of the job has changed: the process that polls the operations writes into
// it what ended. Errors are those of OfBackup and of send, the cause of the end of ctx, and one
// that wraps errgrpc.ErrConflict when another object has the name.
func (s *Source) Watch(ctx context.Context, owner Owner, send func(State) error) error {
	ticker := s.Clock.NewTicker(WatchPeriod)
	defer ticker.Stop()
	var last *foundOperations
	var uid types.UID
	for {
		job, err := s.readJob(ctx, owner)
		switch {
		case err != nil:
			return err
		case uid != "" && job.GetUID() != uid:
			return fmt.Errorf("%s was replaced by another of its name: %w", owner, errgrpc.ErrConflict)
		case last == nil || job.GetResourceVersion() != last.job.GetResourceVersion():
			if last, err = s.readOperations(ctx, owner); err != nil {
				return err
			}
		}
		uid = job.GetUID()
		phase, terminal := phaseOf(last.job)
		if err := send(State{Phase: phase, Operations: s.listOperations(last)}); err != nil || terminal {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C():
		}
	}
}

// phaseOf returns the phase of a job, and whether it is the last one.
func phaseOf(job client.Object) (phase string, terminal bool) {
	switch job := job.(type) {
	case *velerov1.Backup:
		return string(job.Status.Phase), job.Status.Phase.Terminal()
	case *velerov1.Restore:
		return string(job.Status.Phase), job.Status.Phase.Terminal()
	}
	return "", true
}
