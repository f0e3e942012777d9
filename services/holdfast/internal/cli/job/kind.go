// Package job holds the commands that backups and restores share: get, describe, logs, cancel,
// delete, and what every create has. What differs between the two kinds is data, a Kind.
package job

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/command"
)

// Kind is what differs between backups and restores. T is a pointer to the API type.
type Kind[T client.Object] struct {
	// Name is the kind in the API, such as "Backup"; in sentences it is written in lower case.
	Name string
	// New and NewList return empty objects.
	New     func() T
	NewList func() client.ObjectList
	// Status returns what the commands read of an object's status.
	Status func(T) Status

	// Columns are the header of the table that get prints, WideColumns what -o wide adds to it. Row
	// returns the cells of an object in all of them, Compare orders the rows.
	Columns, WideColumns []string
	Row                  func(obj T, now time.Time) []string
	Compare              func(a, b T) int

	// Location returns the storage location that the files of a job lie in.
	Location func(ctx context.Context, c client.Client, obj T) (string, error)
	Files    FileKinds
	// Live reads the log of a job that runs; nil where no service shows it.
	Live *LiveLog
	// Describe reads what the description has besides the files, which are read afterwards into
	// files.
	Describe func(ctx context.Context, s *Session, obj T, files *Files) (Description, error)
	// DescribeFlags adds flags of the kind to describe; nil where there is none. CheckDescribe
	// reports those that are wrong.
	DescribeFlags func(*pflag.FlagSet)
	CheckDescribe func(*command.Global) error

	// CancelShort, DeleteShort and DeleteWait are help texts.
	CancelShort, DeleteShort, DeleteWait string
	// Delete deletes one object and, with wait, returns when it is gone.
	Delete func(ctx context.Context, s *Session, obj T, wait bool) error
}

// Status is what the commands read of the status of a job.
type Status struct {
	// Phase is the phase; those of restores have the same names.
	Phase velerov1.BackupPhase
	// Stage is how far the job is.
	Stage mark.CancelStage
	// FailureReason and ValidationErrors say why a job failed.
	FailureReason    string
	ValidationErrors []string
	// Errors and Warnings are counts.
	Errors, Warnings int
	// Done and Total count items; zero while they are not known.
	Done, Total int
}

// Items is how many items of all are done; empty while they are not counted.
func (s Status) Items() string {
	if s.Total == 0 {
		return ""
	}
	return fmt.Sprintf("%d/%d", s.Done, s.Total)
}

// FileKinds are the kinds of the files that a job leaves.
type FileKinds struct {
	Log, Results, Volumes, Resources velerov1.DownloadTargetKind
}

// kindNoun is the kind in sentences.
func (k *Kind[T]) kindNoun() string { return strings.ToLower(k.Name) }

// kindPlural is the kind in sentences about several.
func (k *Kind[T]) kindPlural() string { return k.kindNoun() + "s" }

// Find reads one object; the error names it.
func (k *Kind[T]) Find(ctx context.Context, s *Session, name string) (T, error) {
	obj := k.New()
	if err := s.Client.Get(ctx, types.NamespacedName{Namespace: s.Namespace, Name: name}, obj); err != nil {
		if apierrors.IsNotFound(err) {
			err = fmt.Errorf("%w in namespace %q; `holdfast %s get` lists those that exist", err, s.Namespace, k.kindNoun())
		}
		return obj, fmt.Errorf("%s %q: %w", k.kindNoun(), name, err)
	}
	obj.GetObjectKind().SetGroupVersionKind(velerov1.GroupVersion.WithKind(k.Name))
	return obj, nil
}

// shownPhase is the phase of an object as people see it.
func (k *Kind[T]) shownPhase(obj T) velerov1.BackupPhase { return ShownPhase(obj, k.Status(obj).Phase) }

// waitTexts are what a job that has not ended waits for, as it is marked.
func (k *Kind[T]) waitTexts(obj T) []string {
	if k.Status(obj).Stage == mark.StageEnded {
		return nil
	}
	waits := mark.WaitsOf(obj)
	return waits.Texts()
}

// ShownPhase is the phase of an object as people see it: one that is being removed is Deleting, for
// which the API has no phase of restores.
func ShownPhase(obj client.Object, phase velerov1.BackupPhase) velerov1.BackupPhase {
	switch {
	case obj.GetDeletionTimestamp() != nil:
		return velerov1.BackupPhaseDeleting
	case phase == "":
		return velerov1.BackupPhaseNew
	default:
		return phase
	}
}

// hasLog reports whether the files of a job in this phase can be fetched, by the rule of Velero's
// CLI: its run is over.
func hasLog(phase velerov1.BackupPhase) bool {
	switch phase {
	case velerov1.BackupPhaseCompleted, velerov1.BackupPhasePartiallyFailed, velerov1.BackupPhaseFailed,
		velerov1.BackupPhaseWaitingForPluginOperations, velerov1.BackupPhaseWaitingForPluginOperationsPartiallyFailed:
		return true
	default:
		return false
	}
}

// Session is a command that is connected to a cluster.
type Session struct {
	Global *command.Global
	Client client.Client
	// Namespace is the server's.
	Namespace string
}

// Connect connects to the cluster that the global flags name.
func Connect(g *command.Global) (*Session, error) {
	c, namespace, err := g.Client()
	if err != nil {
		return nil, err
	}
	return &Session{Global: g, Client: c, Namespace: namespace}, nil
}

// Printf writes to the command's output.
func (s *Session) Printf(format string, args ...any) { s.Global.Printf(format, args...) }

// Fetcher returns what fetches the files of jobs.
func (s *Session) Fetcher(options DownloadOptions) *Fetcher {
	return &Fetcher{Client: s.Client, Clock: s.Global.Clock, Namespace: s.Namespace, Options: options}
}
