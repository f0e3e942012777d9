package app

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/podvolume"
	"github.com/holdfast-io/holdfast/pkg/spec/selection"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/plan"
)

// podVolumeSource opens the file-system backups of one backup.
type podVolumeSource struct {
	api     podvolume.API
	mover   podvolume.Mover
	timeout time.Duration
}

// openBackupper returns what begins the file-system backups of a backup, and a warning where an
// annotation of it cannot be used.
func (p *podVolumeSource) openBackupper(backup *velerov1.Backup, filter *selection.Filter) (b *podvolume.Backupper, warning string) {
	b = &podvolume.Backupper{API: p.api, Backup: backup, Claims: filter.Resource(plan.Claims, true), Mover: p.mover, Timeout: p.timeout, Selects: selectsPod(filter)}
	text := backup.Annotations[velerov1.AnnotationPodVolumeTimeout]
	if text == "" {
		return b, ""
	}
	limit, err := time.ParseDuration(text)
	if err != nil || limit <= 0 {
		return b, fmt.Sprintf("annotation %s is not used: %q is not a positive duration; file-system backups may take %s", velerov1.AnnotationPodVolumeTimeout, text, p.timeout)
	}
	b.Timeout = limit
	return b, ""
}

// selectsPod reports whether a filter takes a Pod.
func selectsPod(filter *selection.Filter) func(*corev1.Pod) bool {
	pods := filter.Resource(plan.Pods, true)
	return func(pod *corev1.Pod) bool {
		o := selection.Object{Namespace: pod.Namespace, Name: pod.Name, Labels: labels.Set(pod.Labels), Deleting: pod.DeletionTimestamp != nil}
		return pods && filter.MatchesLabels(o.Labels) && filter.Item(o)
	}
}
