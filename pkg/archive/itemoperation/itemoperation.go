// Package itemoperation reads the file of a job's asynchronous operations.
package itemoperation

import (
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit"
)

// ErrCorrupt means that the file of operations cannot be read as one.
var ErrCorrupt = errors.New("damaged file of operations")

const (
	// fileBytes bounds a file of operations once it is unpacked, operationBytes one of them in it.
	fileBytes      = 256 << 20
	operationBytes = 1 << 20
	// liveBytes bounds what all of them may take in memory: some 40,000 operations.
	liveBytes = 128 << 20
)

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

// GroupResource returns "persistentvolumeclaims" or "datauploads.velero.io".
func (r *Resource) GroupResource() string {
	if r.Group == "" {
		return r.Resource
	}
	return r.Resource + "." + r.Group
}

// Spec is what was started. Backups and restores name the action differently.
type Spec struct {
	BackupAction  string   `json:"backupItemAction"`
	RestoreAction string   `json:"restoreItemAction"`
	Resource      Resource `json:"resourceIdentifier"`
	ID            string   `json:"operationID"`
	// After are the items that the operation changes before it ends.
	After []Resource `json:"postOperationItems"`
}

// Action returns the name of the action that began the operation.
func (s *Spec) Action() string { return cmp.Or(s.BackupAction, s.RestoreAction) }

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

// Done reports that the operation has ended.
func (o *Operation) Done() bool {
	return o.Status.Phase == PhaseCompleted || o.Status.Phase == PhaseFailed
}

// Decode reads a file of operations, oldest first. An empty list, null and a list are fine; everything
// else wraps ErrCorrupt.
func Decode(r io.Reader) ([]Operation, error) {
	packed, err := gzip.NewReader(r)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	var list []Operation
	limits := jsonlimit.Limits{Text: fileBytes, Element: operationBytes, Decoded: 16 * operationBytes, Kept: liveBytes}
	err = jsonlimit.Each(packed, limits, func(o *Operation) error {
		list = append(list, *o)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	slices.SortStableFunc(list, func(a, b Operation) int {
		return cmp.Or(createdAt(a).Compare(createdAt(b).Time), cmp.Compare(a.Spec.ID, b.Spec.ID))
	})
	return list, nil
}

func createdAt(o Operation) metav1.Time {
	if o.Status.Created == nil {
		return metav1.Time{}
	}
	return *o.Status.Created
}
