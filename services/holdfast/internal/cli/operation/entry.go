package operation

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	operationv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/operation/v1"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/command"
)

// List is the operations of a job, oldest first, as -o prints it.
type List struct {
	Operations []Entry `json:"operations"`
}

// Entry is one operation.
type Entry struct {
	ID     string `json:"id"`
	Action string `json:"action"`
	// Resource is the item's, for example "persistentvolumeclaims".
	Resource  string `json:"resource"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Phase is New, InProgress, Completed or Failed.
	Phase       string     `json:"phase"`
	Error       string     `json:"error,omitempty"`
	Completed   int64      `json:"completed,omitempty"`
	Total       int64      `json:"total,omitempty"`
	Units       string     `json:"units,omitempty"`
	Description string     `json:"description,omitempty"`
	Created     *time.Time `json:"created,omitempty"`
	Started     *time.Time `json:"started,omitempty"`
	Updated     *time.Time `json:"updated,omitempty"`
}

var phases = map[operationv1.OperationPhase]string{
	operationv1.OperationPhase_OPERATION_PHASE_NEW:         "New",
	operationv1.OperationPhase_OPERATION_PHASE_IN_PROGRESS: "InProgress",
	operationv1.OperationPhase_OPERATION_PHASE_COMPLETED:   "Completed",
	operationv1.OperationPhase_OPERATION_PHASE_FAILED:      "Failed",
}

func newEntry(o *operationv1.Operation) Entry {
	return Entry{
		ID: o.GetId(), Action: o.GetAction(), Resource: o.GetGroupResource(), Namespace: o.GetNamespace(), Name: o.GetName(),
		Phase: phases[o.GetPhase()], Error: o.GetError(), Completed: o.GetCompleted(), Total: o.GetTotal(), Units: o.GetUnits(),
		Description: o.GetDescription(), Created: command.TimeOf(o.GetCreateTime()), Started: command.TimeOf(o.GetStartTime()), Updated: command.TimeOf(o.GetUpdateTime()),
	}
}

func newList(operations []*operationv1.Operation) List {
	list := List{Operations: make([]Entry, len(operations))}
	for i, o := range operations {
		list.Operations[i] = newEntry(o)
	}
	return list
}

func tableHeader() []string {
	return []string{"ID", "ACTION", "ITEM", "PHASE", "PROGRESS", "AGE", "MESSAGE"}
}

// tableRow is the operation in a table.
func (e *Entry) tableRow(now time.Time) []string {
	item := e.Resource + " " + e.Name
	if e.Namespace != "" {
		item = e.Resource + " " + e.Namespace + "/" + e.Name
	}
	age := "n/a"
	if e.Created != nil {
		age = duration.ShortHumanDuration(now.Sub(*e.Created))
	}
	message := e.Description
	if e.Error != "" {
		message = e.Error
	}
	return []string{e.ID, e.Action, item, e.Phase, e.progressText(), age, message}
}

// progressText is a bar and its numbers.
func (e *Entry) progressText() string {
	return strings.TrimSpace(command.FormatBar(e.Completed, e.Total) + " " + command.FormatAmount(e.Completed, e.Total, e.Units))
}
