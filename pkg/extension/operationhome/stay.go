package operationhome

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Drainer are processes that operations live in; pluginhost.Operations is one.
type Drainer interface {
	// Drain returns the number of operations that run in them, once there is none or ctx has ended.
	Drain(ctx context.Context) int
	// Running returns the number of operations that run in them, without waiting.
	Running() int
	// Close ends the processes.
	Close()
}

// Stay keeps a stopping service running while its plugins' processes have operations: no other
// process can report how they end.
type Stay struct {
	Processes Drainer
	// Limit is for how long at most.
	Limit time.Duration
	Log   *slog.Logger

	once sync.Once
	over chan struct{}
}

func (s *Stay) doneChannel() chan struct{} {
	s.once.Do(func() { s.over = make(chan struct{}) })
	return s.over
}

// Busy reports whether operations run in the processes.
func (s *Stay) Busy() bool { return s.Processes.Running() > 0 }

// Run is the part of a service that waits for the end of ctx, then for the operations, and ends the
// processes. It is called once.
func (s *Stay) Run(ctx context.Context) error {
	<-ctx.Done()
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.Limit)
	defer cancel()
	if left := s.Processes.Drain(limited); left > 0 {
		s.Log.WarnContext(ctx, "Operations did not end in time; they end with the process", "operations", left)
	}
	close(s.doneChannel())
	s.Processes.Close()
	return nil
}

// Before returns a part of a service that runs until Run has returned, such as the renewal of the
// Lease by which other instances find this one.
func (s *Stay) Before(run func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
		defer cancel()
		go func() {
			select {
			case <-s.doneChannel():
				cancel()
			case <-longer.Done():
			}
		}()
		return run(longer)
	}
}
