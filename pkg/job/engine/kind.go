package engine

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/pkg/job/claim"
)

// Interest is what the engine does about an object it observes.
type Interest int

const (
	// None means that there is no job, or that it ended. The object is looked at again when it
	// changes.
	None Interest = iota
	// Wait means that the job waits for something. The object is looked at again after Period.
	Wait
	// Begin means that the job waits for its first holder. It is announced, and worked on here if
	// that had no effect for Overdue.
	Begin
	// Resume means that the job was begun. If no live instance holds it, it is announced and worked
	// on here at once.
	Resume
)

// Kind is one kind of job. Its methods are safe for concurrent use.
type Kind[T client.Object] interface {
	// Pending returns what to do about an object of the cache that is not being deleted and that this
	// process does not work on. It may make calls; the object must not be changed. After an error it
	// is called again soon.
	Pending(ctx context.Context, obj T) (Interest, error)
	// Terminal reports that the job ended: nothing is written over its phase.
	Terminal(obj T) bool
	// Admit decides about an object as it was just read from the API server, neither terminal nor
	// being deleted nor held by a live instance. It may make calls and changes nothing: the write
	// that follows replaces exactly the version it was shown, and after a conflict it is asked
	// again. An error is not a decision: the job is tried again later.
	Admit(ctx context.Context, obj T) (Decision[T], error)
	// GiveUp decides in the place of Admit about a job that ends without another try, for that
	// reason: its claim cannot be read, or three attempts at it panicked without progress. A
	// claimable one may be claimed, to end by what is recorded of it; if that panics too, or the
	// claim cannot be read, the decision is to be End or NotNow.
	GiveUp(obj T, reason error, claimable bool) Decision[T]
}

// Job is one attempt of this process at a job. Its methods are called one after another.
type Job[T client.Object] interface {
	// Claimed completes the write by which this process becomes the holder: the object is the one
	// that was admitted, c what becomes its claim. An error prevents the write.
	Claimed(obj T, c claim.Claim) error
	// Run carries the job to its end and writes that. ctx ends when the claim is lost, and when the
	// grace period is over after the process began to stop; Held has what else there is to
	// know.
	//
	// Nil means that nothing is left to do here: the job ended, or was released. An error that
	// wraps claim.ErrLost means that it is another's. After any other error the claim is released,
	// and the job is tried again. So it is after a panic, which is logged.
	Run(ctx context.Context, held *Held[T]) error
}

// Finalizer is a Kind with something left to do for objects that there is no job for.
type Finalizer[T client.Object] interface {
	// Finalize is shown an object of the cache that is being deleted, or whose Interest is None.
	// free reports that no live instance holds the claim, and that this process does not work on
	// it. The object is shown again after the time that is returned, 0 for when it changes. It must
	// not be changed.
	Finalize(ctx context.Context, obj T, free func() bool) (again time.Duration, err error)
}

// Decision is what becomes of an object that no process holds: Claim, NotNow or End.
type Decision[T client.Object] struct {
	job    Job[T]
	end    func(T) error
	ended  func(context.Context, T)
	reason string
}

// Claim has the job claimed and run.
func Claim[T client.Object](job Job[T]) Decision[T] { return Decision[T]{job: job} }

// NotNow leaves the object alone; the reason is logged for debugging.
func NotNow[T client.Object](reason string) Decision[T] { return Decision[T]{reason: reason} }

// End ends the job without a claim, by what write does to the object. ended is called with the
// object as it was written; it may be nil.
func End[T client.Object](write func(T) error, ended func(context.Context, T)) Decision[T] {
	return Decision[T]{end: write, ended: ended}
}
