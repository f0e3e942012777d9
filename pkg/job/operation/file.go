package operation

import (
	"bufio"
	"encoding/json"
	"io"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// fileEntry is an operation as Velero 1.18 writes it. Fields that do not fit the kind of the job are
// left out.
type fileEntry struct {
	Spec   fileSpec   `json:"spec"`
	Status fileStatus `json:"status"`
}

// fileResource is a Resource, whose keys are capitalised in the file.
type fileResource struct {
	Group     string `json:"Group"`
	Resource  string `json:"Resource"`
	Namespace string `json:"Namespace"`
	Name      string `json:"Name"`
}

type fileSpec struct {
	BackupName    string       `json:"backupName,omitempty"`
	BackupUID     string       `json:"backupUID,omitempty"`
	BackupAction  string       `json:"backupItemAction,omitempty"`
	RestoreName   string       `json:"restoreName,omitempty"`
	RestoreUID    string       `json:"restoreUID,omitempty"`
	RestoreAction string       `json:"restoreItemAction,omitempty"`
	Resource      fileResource `json:"resourceIdentifier"`
	ID            string       `json:"operationID"`
	// After is a []fileResource of a backup, null where there are none, and nil of a restore.
	After any `json:"postOperationItems,omitempty"`
}

type fileStatus struct {
	Phase       Phase        `json:"phase,omitempty"`
	Error       string       `json:"error,omitempty"`
	Completed   int64        `json:"nCompleted,omitempty"`
	Total       int64        `json:"nTotal,omitempty"`
	Units       string       `json:"operationUnits,omitempty"`
	Description string       `json:"description,omitempty"`
	Created     *metav1.Time `json:"created,omitempty"`
	Started     *metav1.Time `json:"started,omitempty"`
	Updated     *metav1.Time `json:"updated,omitempty"`
}

// EncodeFile writes the text of the file of a job's operations, which is compressed. The same states
// give the same text.
func EncodeFile(w io.Writer, job Job, operations []Operation, states []State) error {
	out := bufio.NewWriter(w)
	separator := "["
	for i := range operations {
		data, err := json.Marshal(entryOf(job, &operations[i], &states[i]))
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

func entryOf(job Job, op *Operation, state *State) fileEntry {
	w := fileEntry{
		Spec: fileSpec{ID: op.ID, Resource: fileResource(op.Item)},
		Status: fileStatus{
			Phase: state.Phase, Error: state.Error, Completed: state.Completed, Total: state.Total, Units: state.Units,
			Description: state.Description, Created: secondsOf(&op.Created), Started: secondsOf(state.Started), Updated: secondsOf(state.Updated),
		},
	}
	if w.Status.Updated == nil && state.Phase.Ended() {
		w.Status.Updated = secondsOf(&state.EndTime)
	}
	if job.Kind == KindRestore {
		w.Spec.RestoreName, w.Spec.RestoreUID, w.Spec.RestoreAction = job.Name, job.UID, op.Action
	} else {
		var items []fileResource
		for i := range op.PostOperation {
			items = append(items, fileResource(op.PostOperation[i]))
		}
		w.Spec.BackupName, w.Spec.BackupUID, w.Spec.BackupAction, w.Spec.After = job.Name, job.UID, op.Action, items
	}
	return w
}

// secondsOf is a time in the precision that the file keeps.
func secondsOf(t *time.Time) *metav1.Time {
	if t == nil || t.IsZero() {
		return nil
	}
	return &metav1.Time{Time: t.UTC().Truncate(time.Second)}
}
