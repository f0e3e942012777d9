// Package claim decides which process works on a job.
//
// A runner that takes a job writes holder, address and an epoch one higher than before into the
// annotation holdfast.io/claim, in the same write as the phase. Holders are alive while their Lease
// changes: Instance.Acquire allows the next claim, and package engine writes it. The epoch is the
// fencing token of everything the holder writes elsewhere.
//
// Leader election of client-go, one for each job, would give the exclusion and no epoch, and would
// renew one Lease for each job: at its usual two seconds, a hundred jobs write fifty times a
// second. Here an instance renews one, whatever it holds. No benchmark shows that, it follows from
// the number of writes.
package claim

import (
	"encoding/json"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
)

// ErrLost is the cause of a guarded context that ended because the claim, or the object itself, is
// no longer the holder's.
var ErrLost = errors.New("claim lost")

// Claim is the value of the claim annotation (JSON). Holder is empty after a hand-over, or when the
// claim was taken from its holder: anyone may take the job at once.
type Claim struct {
	Owner   string `json:"holder"`
	Address string `json:"address,omitempty"`
	Epoch   int64  `json:"epoch"`
	// Panics is how many attempts at the job panicked one after another without progress.
	Panics int `json:"panics,omitempty"`
}

// HeldError means that a live instance holds the claim.
type HeldError struct{ Owner, Address string }

// Error implements error.
func (e *HeldError) Error() string { return "claimed by the live instance " + e.Owner }

// Parse reads the claim of an object; false when there is none. A claim that cannot be read, or
// whose epoch is not positive, is an error.
func Parse(obj metav1.Object) (Claim, bool, error) {
	text, ok := obj.GetAnnotations()[holdfast.AnnotationClaim]
	if !ok {
		return Claim{}, false, nil
	}
	var c Claim
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return Claim{}, false, fmt.Errorf("annotation %s: %w", holdfast.AnnotationClaim, err)
	}
	if c.Epoch < 1 {
		return Claim{}, false, fmt.Errorf("annotation %s: epoch is %d", holdfast.AnnotationClaim, c.Epoch)
	}
	return c, true, nil
}

// Set writes a claim into the object's annotations.
func Set(obj metav1.Object, c Claim) error {
	text, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("annotation %s: %w", holdfast.AnnotationClaim, err)
	}
	annotations := obj.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[holdfast.AnnotationClaim] = string(text)
	obj.SetAnnotations(annotations)
	return nil
}

// Check returns an error wrapping ErrLost unless the object still carries this claim's holder and
// epoch. Call it inside every compare-and-swap of a holder.
func Check(obj metav1.Object, mine Claim) error {
	switch c, ok, err := Parse(obj); {
	case err != nil:
		return fmt.Errorf("%w: %w", ErrLost, err)
	case !ok:
		return fmt.Errorf("%w: the claim was removed", ErrLost)
	case c.Epoch != mine.Epoch || c.Owner != mine.Owner:
		return fmt.Errorf("%w: to %q at epoch %d, was %q at epoch %d", ErrLost, c.Owner, c.Epoch, mine.Owner, mine.Epoch)
	}
	return nil
}
