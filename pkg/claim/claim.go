// Package claim decides which process works on a job.
//
// A runner that takes a job writes holder, address and an epoch one higher than
// before into the annotation holdfast.io/claim, in the same write as the phase.
// Holders are alive while their Lease changes; the epoch is the fencing token
// of everything the holder writes elsewhere.
package claim

import (
	"context"
	"errors"
	"log/slog"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ErrLost is the cause of a guarded context that ended because the claim, or
// the object itself, is no longer the holder's.
var ErrLost = errors.New("claim lost")

// Claim is the value of the claim annotation (JSON). Holder is empty after a
// hand-over: anyone may take the job at once.
type Claim struct {
	Holder  string `json:"holder"`
	Address string `json:"address"`
	Epoch   int64  `json:"epoch"`
}

// HeldError says that a live instance holds the claim.
type HeldError struct{ Holder, Address string }

// Error implements error.
func (e *HeldError) Error() string { return "claimed by the live instance " + e.Holder }

// Parse reads the claim of an object; false when there is none.
func Parse(obj metav1.Object) (Claim, bool, error) { panic("skeleton") }

// Set writes a claim into the object's annotations.
func Set(obj metav1.Object, c Claim) error { panic("skeleton") }

// Release empties the holder and keeps the epoch: the next taker goes on at once.
func Release(obj metav1.Object) error { panic("skeleton") }

// Check returns an error wrapping ErrLost unless the object still carries this claim.
func Check(obj metav1.Object, mine Claim) error { panic("skeleton") }

// Config describes an instance.
type Config struct {
	Reader    client.Reader // uncached (Manager.GetAPIReader)
	Client    client.Client // writes
	Namespace string
	Name      string        // unique per process start
	Address   string        // where this instance answers gRPC
	Timeout   time.Duration // a holder unchanged for this long is dead; 0 means 30 s
	// Predecessors are instances known to be gone because this process holds
	// the lock of the data directory they used: their claims are free at once.
	Predecessors []string
	Clock        clock.WithTicker
	Log          *slog.Logger
}

// Instance is this process as a holder of claims and a watcher of others.
// Safe for concurrent use.
type Instance struct{ cfg Config }

// NewInstance prepares an instance; Run brings it to life.
func NewInstance(cfg Config) *Instance { panic("skeleton") }

// Run holds the Lease and watches all instance Leases until ctx ends, then
// releases the Lease.
func (i *Instance) Run(ctx context.Context) error { panic("skeleton") }

// Ready tells whether the Lease has been written: no claim before that.
func (i *Instance) Ready() bool { panic("skeleton") }

// Take returns the claim to write, in the same patch as the phase: this
// instance with the epoch raised by one. A *HeldError while another live
// instance holds the object.
func (i *Instance) Take(obj metav1.Object) (Claim, error) { panic("skeleton") }

// Expired delivers the names of holders seen dying.
func (i *Instance) Expired() <-chan string { panic("skeleton") }

// Guard returns a context that ends with cause ErrLost once epoch, holder or
// UID of the object differ from what obj carries, or the object vanished.
// API errors and unrelated edits do not end it.
func (i *Instance) Guard(ctx context.Context, obj client.Object) (context.Context, context.CancelFunc) {
	panic("skeleton")
}
