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

// looks bounds how often Explain reads again because the backup changed meanwhile.
const looks = 5

// Explain returns what a backup waits for, by the code that admits backups, with the present state
// of the cluster. An absent backup is errgrpc.ErrNotFound; other errors are the API server's.
func (s *Scheduler) Explain(ctx context.Context, name string) (*Explanation, error) {
	for range looks {
		b := &velerov1.Backup{}
		err := s.Reader.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: name}, b)
		if apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("backup %q: %w", name, errgrpc.ErrNotFound)
		}
		if err != nil {
			return nil, fmt.Errorf("read backup %q: %w", name, err)
		}
		if b.Status.Phase.Terminal() {
			return &Explanation{Job: newJob(runningJob{backup: b})}, nil
		}
		found, err := s.explainOne(ctx, b.UID)
		if found != nil || err != nil {
			return found, err
		}
	}
	return nil, fmt.Errorf("backup %q: %w", name, errgrpc.ErrConflict)
}

// explainOne returns nil when the backup is not in the queue (any more).
func (s *Scheduler) explainOne(ctx context.Context, uid types.UID) (*Explanation, error) {
	v, err := s.views.readView(ctx, s.Reader)
	if err != nil {
		return nil, err
	}
	line := s.ordering.foreseeLine(ctx, v)
	jobs := v.queueJobs(line)
	i := slices.IndexFunc(jobs, func(j Job) bool { return j.Kind == ledger.KindBackup && j.Object.GetUID() == uid })
	if i < 0 {
		return nil, nil //nolint:nilnil // the caller reads again
	}
	out := &Explanation{Job: jobs[i]}
	if jobs[i].Waits {
		out.Obstacles, err = s.obstaclesOf(ctx, v, line, uid)
	}
	return out, err
}

// obstaclesOf goes through the queue as a pass does, up to the backup in question.
func (s *Scheduler) obstaclesOf(ctx context.Context, v *passView, line []Waiting, uid types.UID) ([]Obstacle, error) {
	// A pass first takes out of the ledger what is over.
	v.entries = slices.DeleteFunc(v.entries, func(e ledger.Entry) bool { return !v.holds[e.UID] })
	w := newAdmission(v)
	for i := range line {
		b := line[i].Backup
		if line[i].Inadmissible != nil {
			if b.UID == uid {
				return []Obstacle{inadmissibleObstacle(&line[i])}, nil
			}
			continue
		}
		namespaces, err := s.resolver.resolveBackup(ctx, v, b)
		if err != nil {
			return nil, err
		}
		reason := w.obstacleFor(namespaces)
		switch {
		case b.UID == uid:
			return w.inTheWay(v, line[:i], b, namespaces), nil
		case reason == nil:
			w.noteAdmitted(ledger.Entry{UID: b.UID, Kind: ledger.KindBackup, Namespace: b.Namespace, Name: b.Name, Namespaces: namespaces, Since: s.Clock.Now()})
		default:
			w.reserveFor(b.Name, namespaces, reason)
		}
	}
	return nil, nil
}

// inadmissibleObstacle is what an inadmissible backup waits for.
func inadmissibleObstacle(b *Waiting) Obstacle {
	out := Obstacle{Reason: WriteRefused, Message: b.Inadmissible.Error(), Since: b.Backup.CreationTimestamp.Time}
	if causeOf(b.Inadmissible).away != nil {
		out.Reason = LocationUnavailable
	}
	return out
}

// inTheWay lists everything that holds b up, where obstacle returns the first thing it
// finds. The backups ahead of b are decided.
func (w *backupAdmission) inTheWay(v *passView, ahead []Waiting, b *velerov1.Backup, namespaces []string) []Obstacle {
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
		if shared := ledger.Overlap(e.Namespaces, namespaces); len(shared) > 0 {
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
	if limit := w.limits.Backups; limit > 0 && len(w.backups) >= limit {
		full := Obstacle{Reason: NoPlace, Limit: limit, Since: b.CreationTimestamp.Time}
		for _, e := range w.backups {
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
