package gauges

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// last are the newest backups of one schedule; each is nil where there is none.
type last struct{ ended, successful, sized *velerov1.Backup }

// showLast shows the newest backups of each Schedule that exists, and of those without one.
func (f *found) showLast(to chan<- prometheus.Metric) {
	bySchedule := map[string]*last{"": {}}
	for i := range f.schedules.Items {
		bySchedule[f.schedules.Items[i].Name] = &last{}
	}
	for i := range f.backups.Items {
		b := &f.backups.Items[i]
		if l, ok := bySchedule[b.Labels[velerov1.LabelScheduleName]]; ok {
			l.see(b)
		}
	}
	for schedule, l := range bySchedule {
		l.show(to, schedule)
	}
}

func (l *last) see(b *velerov1.Backup) {
	newest := func(of **velerov1.Backup) {
		if *of == nil || end(*of).Before(end(b)) {
			*of = b
		}
	}
	switch b.Status.Phase {
	case velerov1.BackupPhaseCompleted:
		if b.Status.CompletionTimestamp != nil {
			newest(&l.successful)
		}
		newest(&l.ended)
	case velerov1.BackupPhasePartiallyFailed, velerov1.BackupPhaseFailed, velerov1.BackupPhaseFailedValidation:
		newest(&l.ended)
	default:
		return
	}
	if _, ok := size(b); ok {
		newest(&l.sized)
	}
}

func (l *last) show(to chan<- prometheus.Metric, schedule string) {
	if l.successful != nil {
		gauge(to, lastSuccess, float64(l.successful.Status.CompletionTimestamp.Unix()), schedule)
	}
	if l.sized != nil {
		bytes, _ := size(l.sized)
		gauge(to, lastSize, float64(bytes), schedule)
	}
	if l.ended == nil {
		return
	}
	status, items := 0.0, 0
	if l.ended.Status.Phase == velerov1.BackupPhaseCompleted {
		status = 1
	}
	if p := l.ended.Status.Progress; p != nil {
		items = p.TotalItems
	}
	gauge(to, lastStatus, status, schedule)
	gauge(to, lastItems, float64(items), schedule)
	gauge(to, lastErrors, float64(l.ended.Status.Errors), schedule)
}

// end is when a backup ended: one that failed validation may have no time of it.
func end(b *velerov1.Backup) time.Time {
	if at := b.Status.CompletionTimestamp; at != nil {
		return at.Time
	}
	return b.CreationTimestamp.Time
}

// size is what the runner noted of the backup's tarball.
func size(b *velerov1.Backup) (bytes int64, ok bool) {
	bytes, err := strconv.ParseInt(b.Annotations[holdfast.AnnotationTarballBytes], 10, 64)
	return bytes, err == nil && bytes >= 0
}
