package queue

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
	"github.com/holdfast-io/holdfast/pkg/job/validate"
)

// Reason is a kind of thing that is in the way of a backup.
type Reason int

// The reasons, in the order in which obstacles are listed.
const (
	// OverlapRunning: an admitted job shares namespaces with it.
	OverlapRunning Reason = iota + 1
	// RestoreAhead: a restore that waits shares namespaces with it.
	RestoreAhead
	// OverlapAhead: a backup further ahead in the queue shares namespaces with it.
	OverlapAhead
	// NoPlace: as many backups run, or start before it, as may run at once.
	NoPlace
	// LocationUnavailable: its location is. It delays no other job meanwhile.
	LocationUnavailable
	// WriteRefused: the API server refuses to write it. It delays no other job meanwhile.
	WriteRefused
)

// Obstacle is one thing that is in the way of a backup.
type Obstacle struct {
	Reason Reason
	// Jobs are those in the way: all that take a place with NoPlace, else one.
	Jobs []Ref
	// Namespaces are those that both need, sorted; none with NoPlace.
	Namespaces []string
	// Since is when it began to delay this backup, as far as the objects have timestamps.
	Since time.Time
	// Limit is how many backups may run at once, with NoPlace.
	Limit int
	// Message describes what is wrong, with LocationUnavailable and WriteRefused.
	Message string
}

// Ref names a backup or restore of the server namespace.
type Ref struct {
	Kind, Name string
	UID        types.UID
}

// Explanation is where a backup stands. One that waits and has no obstacle starts with the next
// pass.
type Explanation struct {
	Job       Job
	Obstacles []Obstacle
}

// Explain returns what a backup waits for, by the code that admits backups, with the present state
// of the cluster. An absent backup is errgrpc.ErrNotFound, one that changed meanwhile is
// errgrpc.ErrConflict; other errors are the API server's.
func (s *Scheduler) Explain(ctx context.Context, name string) (*Explanation, error) {
	v, err := s.readView(ctx, s.Reader)
	if err != nil {
		return nil, err
	}
	isNamed := func(j Job) bool { return j.Kind == ledger.KindBackup && j.Object.GetName() == name }
	if out, err := s.explainJob(ctx, v, isNamed); out != nil || err != nil {
		return out, err
	}
	return s.explainEnded(ctx, name)
}

// explainJob explains the job of a view; nil if it is not there.
func (s *Scheduler) explainJob(ctx context.Context, v *passView, isJob func(Job) bool) (out *Explanation, err error) {
	line := s.foreseeLine(ctx, v)
	jobs := v.queueJobs(line)
	i := slices.IndexFunc(jobs, isJob)
	if i < 0 {
		return nil, nil //nolint:nilnil // as documented
	}
	out = &Explanation{Job: jobs[i]}
	if jobs[i].Waits {
		out.Obstacles, err = s.obstaclesOf(ctx, v, line, jobs[i].Object.GetUID())
	}
	return out, err
}

// foreseenUID is the UID of a backup that does not exist.
const foreseenUID types.UID = "foreseen"

// Foresee validates and completes a backup that does not exist, and explains what it would wait for if it were
// created now. With lasting problems there is no explanation.
func (s *Scheduler) Foresee(ctx context.Context, b *velerov1.Backup) (*Explanation, validate.Problems, error) {
	problems, err := s.Validator.Backup(ctx, b)
	if err != nil || len(problems.LastingProblems()) > 0 {
		return nil, problems, err
	}
	v, err := s.readView(ctx, s.Reader)
	if err != nil {
		return nil, nil, err
	}
	created := s.Clock.Now()
	for _, other := range v.fresh { // the clocks of this process and of the API server may differ
		created = laterTime(created, other.CreationTimestamp.Add(time.Second))
	}
	waiting := b.DeepCopy()
	waiting.UID, waiting.CreationTimestamp = foreseenUID, metav1.NewTime(created)
	v.fresh = append(v.fresh, waiting)
	out, err := s.explainJob(ctx, v, func(j Job) bool { return j.Object.GetUID() == foreseenUID })
	if err == nil && v.live != nil {
		err = v.live.err // without namespaces there is nothing to plan
	}
	if err == nil && out == nil {
		err = fmt.Errorf("backup %q is not in the queue that it was added to", b.Name)
	}
	return out, problems, err
}

// explainEnded explains a backup that is not among the unfinished ones.
func (s *Scheduler) explainEnded(ctx context.Context, name string) (*Explanation, error) {
	b := &velerov1.Backup{}
	err := s.Reader.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: name}, b)
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("backup %q: %w", name, errgrpc.ErrNotFound)
	case err != nil:
		return nil, fmt.Errorf("read backup %q: %w", name, err)
	case !b.Status.Phase.Terminal():
		return nil, fmt.Errorf("backup %q: %w", name, errgrpc.ErrConflict)
	}
	return &Explanation{Job: newJob(b)}, nil
}

// obstaclesOf goes through the queue as a pass does, up to the backup in question.
func (s *Scheduler) obstaclesOf(ctx context.Context, v *passView, line []Waiting, uid types.UID) ([]Obstacle, error) {
	// A pass first takes out of the ledger what is over.
	v.entries = slices.DeleteFunc(v.entries, func(e ledger.Entry) bool { return !v.holds[e.UID] })
	v.pending = slices.DeleteFunc(v.pending, func(r *velerov1.Restore) bool { return !s.isReserving(r) })
	w := newBackupAdmission(v)
	for i := range line {
		b := line[i].Backup
		if line[i].Inadmissible != nil {
			if b.UID == uid {
				return []Obstacle{inadmissibleObstacle(&line[i])}, nil
			}
			continue
		}
		namespaces, err := s.resolveBackup(ctx, v, b)
		if err != nil {
			return nil, err
		}
		reason := w.obstacleFor(&ledger.Entry{Namespaces: namespaces})
		switch {
		case b.UID == uid:
			return w.listObstacles(v, line[:i], b, namespaces), nil
		case reason == nil:
			w.noteAdmitted(backupEntry(b, namespaces, s.Clock.Now()))
		default:
			w.reserveFor(b.Name, namespaces, reason)
		}
	}
	return nil, nil
}

// inadmissibleObstacle is what an inadmissible backup waits for.
func inadmissibleObstacle(b *Waiting) Obstacle {
	out := Obstacle{Reason: WriteRefused, Message: b.Inadmissible.Error(), Since: b.Backup.CreationTimestamp.Time}
	if isLocationAway(b.Inadmissible) {
		out.Reason = LocationUnavailable
	}
	return out
}

// listObstacles lists everything that holds b up, where obstacleFor returns the first thing it
// finds. The backups ahead of b are decided.
func (w *admission) listObstacles(v *passView, ahead []Waiting, b *velerov1.Backup, namespaces []string) []Obstacle {
	var out []Obstacle
	add := func(reason Reason, kind string, o metav1.Object, theirs []string) {
		if shared := ledger.Overlap(theirs, namespaces); len(shared) > 0 {
			out = append(out, Obstacle{
				Reason: reason, Jobs: []Ref{{kind, o.GetName(), o.GetUID()}}, Namespaces: shared,
				Since: laterTime(o.GetCreationTimestamp().Time, b.CreationTimestamp.Time),
			})
		}
	}
	for _, e := range v.entries {
		if shared := e.Blocks(&ledger.Entry{Namespaces: namespaces}); len(shared) > 0 {
			out = append(out, Obstacle{
				Reason: OverlapRunning, Jobs: []Ref{{e.Kind, e.Name, e.UID}}, Namespaces: shared,
				Since: laterTime(e.Since, b.CreationTimestamp.Time),
			})
		}
	}
	for _, r := range v.pending {
		add(RestoreAhead, ledger.KindRestore, r, slices.Sorted(slices.Values(targetNamespaces(r))))
	}
	for _, other := range ahead {
		add(OverlapAhead, ledger.KindBackup, other.Backup, other.Namespaces)
	}
	if limit := w.limit; limit > 0 && len(w.counted) >= limit {
		full := Obstacle{Reason: NoPlace, Limit: limit, Since: b.CreationTimestamp.Time}
		for _, e := range w.counted {
			full.Jobs = append(full.Jobs, Ref{e.Kind, e.Name, e.UID})
			full.Since = laterTime(full.Since, e.Since)
		}
		out = append(out, full)
	}
	return out
}

func laterTime(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}
