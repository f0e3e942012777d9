package queue

import "context"

// Pass lets a test drive single passes.
func (s *Scheduler) Pass(ctx context.Context) error { return s.pass(ctx, true) }
