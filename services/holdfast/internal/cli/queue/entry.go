package queue

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	queuev1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/queue/v1"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/command"
)

// shownNamespaces is how many names a cell of a table holds.
const shownNamespaces = 3

// Entry is a job of the queue, as -o prints it.
type Entry struct {
	Kind              string     `json:"kind"` // Backup or Restore
	Namespace         string     `json:"namespace"`
	Name              string     `json:"name"`
	UID               string     `json:"uid"`
	Phase             string     `json:"phase"`
	Position          int32      `json:"position,omitempty"` // absent once it waits no more
	Sequence          int64      `json:"sequence,omitempty"`
	Priority          string     `json:"priority,omitempty"`
	EffectivePriority string     `json:"effectivePriority,omitempty"`
	Namespaces        []string   `json:"namespaces,omitempty"`
	CreateTime        time.Time  `json:"createTime"`
	AdmitTime         *time.Time `json:"admitTime,omitempty"`
}

func newEntry(e *queuev1.QueueEntry) Entry {
	return Entry{
		Kind: kindName(e.GetKind()), Namespace: e.GetNamespace(), Name: e.GetName(), UID: e.GetUid(), Phase: e.GetPhase(), Position: e.GetPosition(),
		Sequence: e.GetSequence(), Priority: priorityClass(e.GetPriority()), EffectivePriority: priorityClass(e.GetEffectivePriority()),
		Namespaces: e.GetNamespaces(), CreateTime: e.GetCreateTime().AsTime(), AdmitTime: command.TimeOf(e.GetAdmitTime()),
	}
}

func kindName(k queuev1.JobKind) string {
	switch k {
	case queuev1.JobKind_JOB_KIND_BACKUP:
		return "Backup"
	case queuev1.JobKind_JOB_KIND_RESTORE:
		return "Restore"
	default:
		return k.String()
	}
}

// priorityClass is the priority as the annotation spells it; empty for none.
func priorityClass(p queuev1.Priority) string {
	if p == queuev1.Priority_PRIORITY_UNSPECIFIED {
		return ""
	}
	return strings.ToLower(strings.TrimPrefix(p.String(), "PRIORITY_"))
}

func tableHeader() []string {
	return []string{"NAME", "KIND", "STATUS", "POSITION", "PRIORITY", "NAMESPACES", "AGE"}
}

func (e *Entry) tableRow(now time.Time) []string {
	position := ""
	if e.Position > 0 {
		position = strconv.Itoa(int(e.Position))
	}
	return []string{
		e.Name, e.Kind, e.Phase, position, e.rankText(), briefList(e.Namespaces), duration.ShortHumanDuration(now.Sub(e.CreateTime)),
	}
}

// rankText is the priority, and what it counts as where that is another.
func (e *Entry) rankText() string {
	if e.EffectivePriority == e.Priority {
		return e.Priority
	}
	return fmt.Sprintf("%s (as %s)", e.Priority, e.EffectivePriority)
}

// briefList joins a few names and counts the others.
func briefList(names []string) string {
	if len(names) <= shownNamespaces {
		return strings.Join(names, ",")
	}
	return fmt.Sprintf("%s,+%d", strings.Join(names[:shownNamespaces], ","), len(names)-shownNamespaces)
}
