package outcome

import "context"

// Open lets records be stored from now on. Those before are held in memory: a successor would do
// everything again.
func (r *Recorder) Open() { r.batch.beginStoring() }

// Wanted delivers when it is time to call Flush, besides the regular calls.
func (r *Recorder) Wanted() <-chan struct{} { return r.batch.wanted }

// Flush stores the records gathered since the last call. Records that could not be stored are kept
// for the next call.
func (r *Recorder) Flush(ctx context.Context, store Store) error {
	return r.batch.flushLines(ctx, store)
}

// Sync waits until everything committed before the call is durable, or ctx ends.
func (r *Recorder) Sync(ctx context.Context) error { return r.batch.awaitStored(ctx) }

// Room waits while too much is not stored yet, or until ctx ends.
func (r *Recorder) Room(ctx context.Context) error { return r.batch.awaitRoom(ctx) }
