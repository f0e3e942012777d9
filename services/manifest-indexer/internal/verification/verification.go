// Package verification verifies the newest backup of each schedule from time to time: what is in the
// bucket is read and compared with its manifest, and the outcome is shown on the Backup, as an Event and
// as metrics.
package verification

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/tarball"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/service/rungroup"
)

const (
	// scanPeriod is how often it is looked for schedules that are due.
	scanPeriod = 10 * time.Minute
	// retryPeriod is the least time between two attempts at a schedule.
	retryPeriod = time.Hour
	// listPage is how many backups are read at once.
	listPage = 500
)

// Verify compares a backup with its manifest, and tells how far it is.
type Verify func(ctx context.Context, backup string, progress func(read, size int64)) (v *tarball.Verification, rebuilt bool, err error)

// Config is what a Verifier needs.
type Config struct {
	Reader    client.Reader // uncached
	Client    client.Client
	Namespace string
	Verify    Verify
	Clock     clock.WithTicker
	Log       *slog.Logger
	Events    mark.Events
	Metrics   prometheus.Registerer
	// Period is how often a backup of each schedule is verified; 0 or negative means never.
	Period time.Duration
}

// Verifier verifies backups of schedules that are due.
type Verifier struct {
	Config
	shown outcomeGauges
	tried map[string]time.Time // schedules, and when their last attempt began. Pass alone uses it.
}

// Outcome is the annotation of a Backup that was verified.
type Outcome struct {
	UID    types.UID `json:"uid"`
	Time   time.Time `json:"time"`
	Faults int64     `json:"faults"`
}

// New returns a Verifier; it registers its metrics.
func New(c Config) *Verifier {
	v := &Verifier{Config: c, tried: map[string]time.Time{}}
	c.Metrics.MustRegister(&v.shown)
	return v
}

// Run makes passes until ctx ends, if there is a period. Failures are logged and tried again. The metrics are
// shown meanwhile, and not afterwards: another replica shows them then.
func (v *Verifier) Run(ctx context.Context) error {
	if v.Period <= 0 {
		<-ctx.Done()
		return nil
	}
	defer v.shown.setOutcomes(nil)
	return rungroup.RunPeriodically(ctx, v.Clock, min(scanPeriod, v.Period), rungroup.NewSignal(), func(ctx context.Context) {
		if err := v.Pass(ctx); err != nil && ctx.Err() == nil {
			v.Log.Error("Failed to verify backups; will retry", "error", err)
		}
	})
}

// scheduleState is what is known of a schedule's backups.
type scheduleState struct {
	newest *velerov1.Backup
	last   Outcome // of its verification last
}

// Pass verifies the newest backup of every schedule that is due, one after the other.
func (v *Verifier) Pass(ctx context.Context) error {
	schedules, err := v.listSchedules(ctx)
	if err != nil {
		return err
	}
	maps.DeleteFunc(v.tried, func(name string, _ time.Time) bool { return schedules[name] == nil })
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(schedules)) {
		v.shown.setOutcomes(schedules)
		s, now := schedules[name], v.Clock.Now()
		if now.Sub(s.last.Time) < v.Period || now.Sub(v.tried[name]) < min(retryPeriod, v.Period) || ctx.Err() != nil {
			continue
		}
		v.tried[name] = now
		if err := v.verifyBackup(ctx, s); err != nil {
			errs = append(errs, fmt.Errorf("backup %q of schedule %q: %w", s.newest.Name, name, err))
		}
	}
	v.shown.setOutcomes(schedules)
	return errors.Join(errs...)
}

// listSchedules finds the schedules that have a backup that can be verified.
func (v *Verifier) listSchedules(ctx context.Context) (map[string]*scheduleState, error) {
	found, page := map[string]*scheduleState{}, ""
	for {
		var list velerov1.BackupList
		if err := v.Reader.List(ctx, &list, client.InNamespace(v.Namespace), client.HasLabels{velerov1.LabelScheduleName}, client.Limit(listPage), client.Continue(page)); err != nil {
			return nil, fmt.Errorf("list backups: %w", err)
		}
		for i := range list.Items {
			b := &list.Items[i]
			if p := b.Status.Phase; p != velerov1.BackupPhaseCompleted && p != velerov1.BackupPhasePartiallyFailed || b.DeletionTimestamp != nil {
				continue
			}
			s := found[b.Labels[velerov1.LabelScheduleName]]
			if s == nil {
				s = &scheduleState{}
				found[b.Labels[velerov1.LabelScheduleName]] = s
			}
			s.addBackup(b)
		}
		if page = list.Continue; page == "" {
			return found, nil
		}
	}
}

func (s *scheduleState) addBackup(b *velerov1.Backup) {
	var o Outcome
	if json.Unmarshal([]byte(b.Annotations[holdfast.AnnotationVerified]), &o) == nil && o.UID == b.UID && o.Time.After(s.last.Time) {
		s.last = o
	}
	if s.newest == nil || startOf(b).After(startOf(s.newest)) {
		s.newest = b
	}
}

func startOf(b *velerov1.Backup) time.Time {
	if t := b.Status.StartTimestamp; t != nil {
		return t.Time
	}
	return b.CreationTimestamp.Time
}

func (v *Verifier) verifyBackup(ctx context.Context, s *scheduleState) error {
	b := s.newest
	found, _, err := v.Verify(ctx, b.Name, func(_, _ int64) {})
	if err != nil {
		return err
	}
	s.last = Outcome{UID: b.UID, Time: v.Clock.Now().UTC().Truncate(time.Second), Faults: found.Found}
	text, err := json.Marshal(s.last)
	if err != nil {
		return err
	}
	v.reportOutcome(b, found)
	return client.IgnoreNotFound(kube.Update(ctx, v.Reader, v.Client, b, func(b *velerov1.Backup) error {
		if b.Annotations == nil {
			b.Annotations = map[string]string{}
		}
		b.Annotations[holdfast.AnnotationVerified] = string(text)
		return nil
	}))
}

// reportOutcome logs what was found, and records it as an Event.
func (v *Verifier) reportOutcome(b *velerov1.Backup, found *tarball.Verification) {
	if found.Found == 0 {
		v.Log.Info("Backup is whole", "backup", b.Name, "objects", found.Objects)
		v.Events.Eventf(b, nil, corev1.EventTypeNormal, "Verified", "Verify", "%d objects are as the manifest says", found.Objects)
		return
	}
	first := found.Faults[0]
	v.Log.Error("Backup is damaged", "backup", b.Name, "faults", found.Found, "kind", string(first.Kind), "path", first.Path, "detail", first.Detail)
	text := fmt.Sprintf("%d faults, the first: %s %s %s; holdfast backup verify %s lists them", found.Found, first.Kind, first.Path, first.Detail, b.Name)
	mark.RecordWarning(v.Events, b, "Damaged", "Verify", text)
}
