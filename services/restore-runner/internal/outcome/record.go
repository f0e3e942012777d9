package outcome

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/klauspost/compress/gzip"
	"k8s.io/apimachinery/pkg/types"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/plan"
)

// formatVersion is that of the records; another one is refused.
const formatVersion = 1

// FilePrefix begins the name of each file of records, beside the owner file.
const FilePrefix = "record-"

const (
	// maxLineBytes bounds a line, and maxRecord what it takes in memory: nothing in it is larger
	// than what an object brought.
	maxLineBytes = 8 << 20
	maxRecord    = 48 << 20
)

// ErrFormat means that a record cannot be read.
var ErrFormat = errors.New("unreadable record")

// Record is one line of a record file: something that happened to one object, or to the restore as
// a whole.
type Record struct {
	// Format is set in the first line of a file, which holds nothing else.
	Format int `json:"formatVersion,omitempty"`
	// Resource, Namespace and Name are the object's in the backup; empty when the record is about
	// the restore.
	Resource  string `json:"resource,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	// Log holds the messages.
	Log []Line `json:"log,omitempty"`
	// Action is the outcome of the object, at Time (Unix milliseconds).
	Action apply.Action `json:"action,omitempty"`
	Time   int64        `json:"time,omitempty"`
	// UID is the object's in the cluster, where others need it.
	UID types.UID `json:"uid,omitempty"`
	// Asked reports that an object in reserve is to be restored although the one it was asked for
	// may have its outcome first.
	Asked bool `json:"asked,omitempty"`
	// Intent is what is about to be done to an object that was there before.
	Intent apply.Intent `json:"intent,omitempty"`
	// Call is set before an action is called that may begin an operation, and again afterwards.
	Call *Call `json:"call,omitempty"`
	// Began is set with the outcome of a Pod or a claim: the operations that fill its volumes. They are complete without
	// the plan, as Call.Begun is.
	Began []operation.Operation `json:"began,omitempty"`
	// Volume is set before a volume is made for a PersistentVolume, and again once it is; and before
	// a claim is created that is filled from a CSI snapshot, and again once nothing waits for it.
	Volume *Volume `json:"volume,omitempty"`
	// Owes are the owner references an object still lacks; Linked reports that they were dealt
	// with.
	Owes   *Owes `json:"owes,omitempty"`
	Linked bool  `json:"linked,omitempty"`
	// Paused is set before an object is created paused, and again once its mark is as in the
	// backup.
	Paused *Paused `json:"paused,omitempty"`
	// Hooked is set with the outcome of a Pod whose hooks have to run.
	Hooked *HookedPod `json:"hooked,omitempty"`
	// Hook is set before a hook of the Pod runs, and again when it has ended.
	Hook *HookRun `json:"hook,omitempty"`
	// Moved is set with the outcome of an object that an action gave another place or kind.
	Moved *Moved `json:"moved,omitempty"`
	// Served reports that a definition was seen established.
	Served bool `json:"served,omitempty"`
	// Lost is a target namespace nothing can be restored into.
	Lost *Lost `json:"lost,omitempty"`
	// Planned is set in one record, before anything is restored.
	Planned *Planned `json:"planned,omitempty"`
	// LeftOut is set with the outcome of an object that is left out on purpose.
	LeftOut bool `json:"leftOut,omitempty"`
	// Fields are the paths of an existing object that would change, or differ, and Unknown the effects
	// that are not known; of a dry run.
	Fields  []string `json:"fields,omitempty"`
	Unknown []string `json:"unknown,omitempty"`
	// Step is a part of the restore that is complete.
	Step string `json:"step,omitempty"`
	// Finished is the last record of all: it decides how the restore ends.
	Finished *Finished `json:"finished,omitempty"`
}

// StepDefinitions is complete when the cluster serves what the restored definitions define, or was
// waited for without success.
const StepDefinitions = "definitions"

// Line is a message. Its level is joblog's name of it, or "fatal" for one that is logged as an
// error and not counted.
type Line struct {
	Time    int64  `json:"t"`
	Level   string `json:"l"`
	Message string `json:"m"`
	// Source is the plugin that logged it; empty for the runner.
	Source string `json:"s,omitempty"`
}

const levelFatal = "fatal"

func (l *Line) logLevel() joblog.Level {
	for _, level := range []joblog.Level{joblog.Debug, joblog.Info, joblog.Warning} {
		if l.Level == level.String() {
			return level
		}
	}
	return joblog.Error
}

// Owes is what has to be known to complete the owner references of an object: those whose owners were not there yet when it was
// created.
type Owes struct {
	UID   types.UID        `json:"uid"`
	Later []LaterReference `json:"later"`
}

// LaterReference is what an owner reference of the backup has beside the identity of the owner, which the plan has under its UID.
type LaterReference struct {
	UID        string `json:"uid"`
	Controller *bool  `json:"controller,omitempty"`
	Block      *bool  `json:"blockOwnerDeletion,omitempty"`
}

// Paused is an object that is created paused, until the restore ends. It is complete without the
// plan: a restore whose backup cannot be read any more ends too.
type Paused struct {
	Target apply.Target `json:"target"`
	// Back is the merge patch that gives its mark the value in the backup.
	Back map[string]any `json:"back,omitempty"`
	// Resumed reports that this was done, or is not to be done any more.
	Resumed bool `json:"resumed,omitempty"`
	// Failed reports that it could not be done; an error is recorded with it.
	Failed bool `json:"failed,omitempty"`
}

// Volume is a volume that is made of a snapshot.
type Volume struct {
	Location string `json:"location"`
	Snapshot string `json:"snapshot"`
	// ID is the volume's; empty before it is known.
	ID string `json:"id,omitempty"`
	// Name is what the PersistentVolume is called in the cluster where it has another name than in
	// the backup.
	Name string `json:"name,omitempty"`
	// Type, Zone and IOPS are the volume's, as in the list of snapshots.
	Type string `json:"type,omitempty"`
	Zone string `json:"zone,omitempty"`
	IOPS int64  `json:"iops,omitempty"`
	// ClaimNamespace and Claim are the claim it is for, in the cluster; empty when there is none.
	ClaimNamespace string `json:"claimNamespace,omitempty"`
	Claim          string `json:"claim,omitempty"`
	// CSI is the CSI snapshot that a claim is filled from; the fields above but for the claim are
	// empty then, and Name is that of the volume once it is known.
	CSI *CSI `json:"csi,omitempty"`
	// Download is the moved snapshot that a claim is filled from, likewise.
	Download *Download `json:"download,omitempty"`
}

// Download is a moved snapshot that a claim is filled from.
type Download struct {
	// Snapshot is its identifier in the repository.
	Snapshot  string `json:"snapshot"`
	DataMover string `json:"dataMover,omitempty"`
	Operation string `json:"operation"`
	// Size of the data, in bytes; 0 is not known.
	Size int64 `json:"size,omitempty"`
	// ReclaimPolicy and Labels are those of the volume in the backup; empty where they are not known.
	ReclaimPolicy string            `json:"reclaimPolicy,omitempty"`
	Labels        map[string]string `json:"labels,omitempty"`
}

// CSI is a CSI snapshot that a claim is filled from.
type CSI struct {
	Handle string `json:"handle"`
	Driver string `json:"driver"`
	// Size is what its volume needs, in bytes; 0 is not known.
	Size int64 `json:"size,omitempty"`
	// Object is what the VolumeSnapshot and its content are called in the cluster.
	Object string `json:"object"`
	// ReclaimPolicy and Labels are those of the volume in the backup; empty where they are not known.
	ReclaimPolicy string            `json:"reclaimPolicy,omitempty"`
	Labels        map[string]string `json:"labels,omitempty"`
	// Settled reports that nothing waits for the claim any more.
	Settled bool `json:"settled,omitempty"`
}

// Moved is the place and the kind of an object in the cluster that are not those of the plan.
type Moved struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// APIVersion, Kind and Resource are what actions made it, empty where that is what the plan has.
	APIVersion string `json:"apiVersion,omitempty"`
	Kind       string `json:"kind,omitempty"`
	Resource   string `json:"resource,omitempty"`
}

// Lost is a target namespace and why nothing can be restored into it.
type Lost struct {
	Namespace string `json:"namespace"`
	Reason    string `json:"reason"`
}

// Planned is what the plan was made from besides the backup and the Restore: a successor makes the
// same one.
type Planned struct {
	Resolved []Resolved `json:"resolved,omitempty"`
	// Missing are the actions that the first holder did not have, in the words of its errors.
	Missing []string `json:"missing,omitempty"`
	// Reserve reports that the plan keeps what actions may ask for.
	Reserve bool `json:"reserve,omitempty"`
	// Pauses are the rules by which objects are created paused.
	Pauses plan.PauseRules `json:"pauses,omitempty"`
	// CSI reports that claims are filled from their CSI snapshots.
	CSI bool `json:"csi,omitempty"`
}

// Resolved is what a name in the lists of resources meant in this cluster.
type Resolved struct {
	Text       string `json:"text"`
	Group      string `json:"group,omitempty"`
	Resource   string `json:"resource,omitempty"`
	Namespaced bool   `json:"namespaced,omitempty"`
	Known      bool   `json:"known,omitempty"`
}

// Finished is how a restore ends.
type Finished struct {
	Phase  velerov1.RestorePhase `json:"phase"`
	Reason string                `json:"reason,omitempty"`
	Time   int64                 `json:"time"`
	Counts Counts                `json:"counts"`
	// Cancelled reports that it failed because it was asked to stop: what was restored until then
	// has results like any other.
	Cancelled bool `json:"cancelled,omitempty"`
	// Invalid is why it failed validation.
	Invalid []string `json:"invalid,omitempty"`
}

// At is when the restore ended.
func (f *Finished) At() time.Time { return time.UnixMilli(f.Time) }

// EachRecord calls do with the records of a file, without its first line.
func EachRecord(data []byte, do func(*Record)) error {
	zip, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrFormat, err)
	}
	lines := bufio.NewScanner(zip)
	lines.Buffer(make([]byte, 0, 64<<10), maxLineBytes)
	first := true
	for ; lines.Scan(); first = false {
		var rec Record
		if err := jsonlimit.Unmarshal(lines.Bytes(), &rec, maxRecord); err != nil {
			return fmt.Errorf("%w: %w", ErrFormat, err)
		}
		switch {
		case !first:
			do(&rec)
		case rec.Format != formatVersion:
			return fmt.Errorf("%w: formatVersion: %d is not supported", ErrFormat, rec.Format)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("%w: %w", ErrFormat, err)
	}
	if first {
		return fmt.Errorf("%w: empty", ErrFormat)
	}
	return nil
}

// packRecords is a file of records from their encoded lines.
func packRecords(lines []byte) ([]byte, error) {
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	_, err := fmt.Fprintf(zip, "{\"formatVersion\":%d}\n", formatVersion)
	if err == nil {
		_, err = zip.Write(lines)
	}
	if err := errors.Join(err, zip.Close()); err != nil {
		return nil, fmt.Errorf("compress records: %w", err)
	}
	return out.Bytes(), nil
}
