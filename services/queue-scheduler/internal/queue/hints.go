package queue

import (
	"context"
	"errors"
	"slices"

	"google.golang.org/protobuf/types/known/timestamppb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/fabric"
	"github.com/holdfast-io/holdfast/pkg/ledger"
	eventv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/event/v1"
	workv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/work/v1"
)

// republish sends the hints of what waits for a runner: messages may be lost,
// and one that is pending already costs nothing.
func (s *Scheduler) republish(ctx context.Context, v *view) error {
	var errs []error
	for _, b := range v.ready {
		errs = append(errs, s.hint(fabric.WithTrace(ctx, b), fabric.WorkBackupRun, ledger.KindBackup, b))
	}
	for _, e := range v.entries {
		if e.Kind != ledger.KindRestore {
			continue
		}
		r, ok := v.traced[e.UID]
		if !ok {
			r = &velerov1.Restore{ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: e.Name, UID: e.UID}}
		}
		errs = append(errs, s.hint(fabric.WithTrace(ctx, r), fabric.WorkRestoreRun, ledger.KindRestore, r))
	}
	return errors.Join(slices.DeleteFunc(errs, func(err error) bool { return err == nil })...)
}

func (s *Scheduler) hintBackup(ctx context.Context, b *velerov1.Backup) {
	s.logged(ctx, s.hint(ctx, fabric.WorkBackupRun, ledger.KindBackup, b))
}

func (s *Scheduler) hintRestore(ctx context.Context, r *velerov1.Restore) {
	s.logged(ctx, s.hint(ctx, fabric.WorkRestoreRun, ledger.KindRestore, r))
}

// logged is for hints whose loss the next pass makes good.
func (s *Scheduler) logged(ctx context.Context, err error) {
	if err != nil {
		s.Log.WarnContext(ctx, "hint not published, it will be again", "error", err)
	}
}

func (s *Scheduler) hint(ctx context.Context, what fabric.What, kind string, obj metav1.Object) error {
	return s.Publisher.Publish(ctx, what, &workv1.Hint{
		Kind: kind, Namespace: obj.GetNamespace(), Name: obj.GetName(), Uid: string(obj.GetUID()),
	})
}

// announce tells caches about a phase. Whoever misses it reads the object.
func (s *Scheduler) announce(ctx context.Context, kind string, obj metav1.Object, phase string) {
	err := s.Publisher.PublishEvent(ctx, &eventv1.Event{
		Kind: kind, Namespace: obj.GetNamespace(), Name: obj.GetName(), Uid: string(obj.GetUID()), Phase: phase,
		Time: timestamppb.New(s.Clock.Now()),
	})
	if err != nil {
		s.Log.DebugContext(ctx, "event not published", "kind", kind, "name", obj.GetName(), "error", err)
	}
}
