// Package operations reads the asynchronous operations of a job from the bucket.
package operations

import (
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ErrCorrupt means that the file of operations cannot be read as one.
var ErrCorrupt = errors.New("damaged file of operations")

// fileBytes bounds a file of operations once it is unpacked: several hundred
// thousand operations.
const fileBytes = 256 << 20

// Phases of an operation (Velero 1.18).
const (
	PhaseNew        = "New"
	PhaseInProgress = "InProgress"
	PhaseCompleted  = "Completed"
	PhaseFailed     = "Failed"
)

// Resource names the item of an operation; the keys are capitalised in the file.
type Resource struct {
	Group     string `json:"Group"`
	Resource  string `json:"Resource"`
	Namespace string `json:"Namespace"`
	Name      string `json:"Name"`
}

// Spec is what was started. Backups and restores name the action differently.
type Spec struct {
	BackupAction  string   `json:"backupItemAction"`
	RestoreAction string   `json:"restoreItemAction"`
	Resource      Resource `json:"resourceIdentifier"`
	ID            string   `json:"operationID"`
}

// Status is how far it is.
type Status struct {
	Phase       string       `json:"phase"`
	Error       string       `json:"error"`
	Completed   int64        `json:"nCompleted"`
	Total       int64        `json:"nTotal"`
	Units       string       `json:"operationUnits"`
	Description string       `json:"description"`
	Created     *metav1.Time `json:"created"`
	Started     *metav1.Time `json:"started"`
	Updated     *metav1.Time `json:"updated"`
}

// Operation is one entry of <name>-itemoperations.json.gz (Velero 1.18 layout).
type Operation struct {
	Spec   Spec   `json:"spec"`
	Status Status `json:"status"`
}

// Done tells that the operation has ended.
func (o *Operation) Done() bool {
	return o.Status.Phase == PhaseCompleted || o.Status.Phase == PhaseFailed
}

// Decode reads a file of operations, oldest first. An empty list, null and a
// list are fine; everything else wraps ErrCorrupt.
func Decode(r io.Reader) ([]Operation, error) {
	packed, err := gzip.NewReader(r)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	data, err := io.ReadAll(io.LimitReader(packed, fileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if len(data) > fileBytes {
		return nil, fmt.Errorf("%w: over %d bytes", ErrCorrupt, fileBytes)
	}
	var list []Operation
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	slices.SortStableFunc(list, func(a, b Operation) int {
		return cmp.Or(created(a).Compare(created(b).Time), cmp.Compare(a.Spec.ID, b.Spec.ID))
	})
	return list, nil
}

func created(o Operation) metav1.Time {
	if o.Status.Created == nil {
		return metav1.Time{}
	}
	return *o.Status.Created
}
