package itemoperation

import (
	"bufio"
	"encoding/json"
	"io"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-io/holdfast/pkg/job/operation"
)

// written is an operation as Velero 1.18 writes it. Fields that do not fit the kind of the job are
// left out.
type written struct {
	Spec   writtenSpec   `json:"spec"`
	Status writtenStatus `json:"status"`
}

type writtenSpec struct {
	BackupName    string   `json:"backupName,omitempty"`
	BackupUID     string   `json:"backupUID,omitempty"`
	BackupAction  string   `json:"backupItemAction,omitempty"`
	RestoreName   string   `json:"restoreName,omitempty"`
	RestoreUID    string   `json:"restoreUID,omitempty"`
	RestoreAction string   `json:"restoreItemAction,omitempty"`
	Resource      Resource `json:"resourceIdentifier"`
	ID            string   `json:"operationID"`
	// After is a []Resource of a backup, null where there are none, and nil of a restore.
	After any `json:"postOperationItems,omitempty"`
}

type writtenStatus struct {
	Phase       operation.Phase `json:"phase,omitempty"`
	Error       string          `json:"error,omitempty"`
	Completed   int64           `json:"nCompleted,omitempty"`
	Total       int64           `json:"nTotal,omitempty"`
	Units       string          `json:"operationUnits,omitempty"`
	Description string          `json:"description,omitempty"`
	Created     *metav1.Time    `json:"created,omitempty"`
	Started     *metav1.Time    `json:"started,omitempty"`
	Updated     *metav1.Time    `json:"updated,omitempty"`
}

// Encode writes the text of the file of a job's operations, which is compressed. The same states
// give the same text.
func Encode(w io.Writer, job operation.Job, operations []operation.Operation, states []operation.State) error {
	out := bufio.NewWriter(w)
	separator := "["
	for i := range operations {
		data, err := json.Marshal(entry(job, &operations[i], &states[i]))
		if err != nil {
			return err
		}
		// The errors of out are kept for Flush.
		_, _ = out.WriteString(separator)
		_, _ = out.Write(data)
		separator = ","
	}
	if len(operations) == 0 {
		_, _ = out.WriteString("[")
	}
	_, _ = out.WriteString("]\n")
	return out.Flush()
}

func entry(job operation.Job, op *operation.Operation, state *operation.State) written {
	w := written{
		Spec: writtenSpec{ID: op.ID, Resource: resourceOf(&op.Item)},
		Status: writtenStatus{
			Phase: state.Phase, Error: state.Error, Completed: state.Completed, Total: state.Total, Units: state.Units,
			Description: state.Description, Created: seconds(&op.Created), Started: seconds(state.Started), Updated: seconds(state.Updated),
		},
	}
	if w.Status.Updated == nil && state.Phase.Ended() {
		w.Status.Updated = seconds(&state.EndTime)
	}
	if job.Kind == operation.KindRestore {
		w.Spec.RestoreName, w.Spec.RestoreUID, w.Spec.RestoreAction = job.Name, job.UID, op.Action
	} else {
		var items []Resource
		for i := range op.PostOperation {
			items = append(items, resourceOf(&op.PostOperation[i]))
		}
		w.Spec.BackupName, w.Spec.BackupUID, w.Spec.BackupAction, w.Spec.After = job.Name, job.UID, op.Action, items
	}
	return w
}

func resourceOf(r *operation.Resource) Resource {
	return Resource{Group: r.Group, Resource: r.Resource, Namespace: r.Namespace, Name: r.Name}
}

// seconds is a time in the precision that the file keeps.
func seconds(t *time.Time) *metav1.Time {
	if t == nil || t.IsZero() {
		return nil
	}
	return &metav1.Time{Time: t.UTC().Truncate(time.Second)}
}
