package metrics

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// lastBackups are the newest backups of one schedule; each is nil where there is none.
type lastBackups struct{ ended, successful, sized *velerov1.Backup }

// showLastBackups shows the newest backups of each Schedule that exists, and of those without one.
func (f *foundJobs) showLastBackups(to chan<- prometheus.Metric) {
	bySchedule := map[string]*lastBackups{"": {}}
	for i := range f.schedules.Items {
		bySchedule[f.schedules.Items[i].Name] = &lastBackups{}
	}
	for i := range f.backups.Items {
		b := &f.backups.Items[i]
		if l, ok := bySchedule[b.Labels[velerov1.LabelScheduleName]]; ok {
			l.noteBackup(b)
		}
	}
	for schedule, l := range bySchedule {
		l.sendMetrics(to, schedule)
	}
}

func (l *lastBackups) noteBackup(b *velerov1.Backup) {
	newest := func(of **velerov1.Backup) {
		if *of == nil || endedAt(*of).Before(endedAt(b)) {
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
	if _, ok := tarballSize(b); ok {
		newest(&l.sized)
	}
}

func (l *lastBackups) sendMetrics(to chan<- prometheus.Metric, schedule string) {
	if l.successful != nil {
		sendGauge(to, lastSuccess, float64(l.successful.Status.CompletionTimestamp.Unix()), schedule)
	}
	if l.sized != nil {
		bytes, _ := tarballSize(l.sized)
		sendGauge(to, lastSize, float64(bytes), schedule)
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
	sendGauge(to, lastStatus, status, schedule)
	sendGauge(to, lastItems, float64(items), schedule)
	sendGauge(to, lastErrors, float64(l.ended.Status.Errors), schedule)
}

// endedAt is when a backup ended: one that failed validation may have no time of it.
func endedAt(b *velerov1.Backup) time.Time {
	if at := b.Status.CompletionTimestamp; at != nil {
		return at.Time
	}
	return b.CreationTimestamp.Time
}

// tarballSize is what the runner noted of the backup's tarball.
func tarballSize(b *velerov1.Backup) (bytes int64, ok bool) {
	bytes, err := strconv.ParseInt(b.Annotations[holdfast.AnnotationTarballBytes], 10, 64)
	return bytes, err == nil && bytes >= 0
}
