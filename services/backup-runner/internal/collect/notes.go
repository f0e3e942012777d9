package collect

import (
	"context"
	"fmt"
	"slices"
	"strings"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/pkg/objmeta"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
)

// source is what the log lines of a backup name as their origin.
const source = "holdfast/backup-runner"

// begin records what is decided for the whole backup: its revision, its units,
// and how the log begins, with the API groups that do not answer. It is durable
// before anything is collected, so that no later holder decides anew.
func (w *worker) begin(ctx context.Context) error {
	r := w.run
	live, err := r.LiveNamespaces(ctx)
	if err != nil {
		return err
	}
	revision, err := r.Cut.Current(ctx)
	if err != nil {
		return err
	}
	failpoint.Hit("backup-runner/cut-taken")
	message := "Backup started, each kind is listed at its newest revision"
	if revision != "" {
		message = "Backup started, everything is listed at revision " + revision
	}
	if err := w.note(joblog.Entry{Level: joblog.Info, Message: message}); err != nil {
		return err
	}
	for _, f := range r.Catalog.Failures() {
		err := w.fail(joblog.Entry{
			Message: fmt.Sprintf("API group %s does not answer: its objects are not backed up", f.GroupVersion), Err: f.Err.Error(),
		})
		if err != nil {
			return err
		}
	}
	start := &checkpoint.Start{LiveNamespaces: live}
	for _, u := range plan(r.Filter, r.Catalog, live) {
		start.Units = append(start.Units, u.id())
	}
	w.record.Start, r.past.start = start, start
	return w.flush()
}

// end notes that everything was listed, once everything is durable.
func (w *worker) end() error {
	if w.run.past.ended {
		return nil
	}
	counts := w.run.Progress.Read()
	err := w.note(joblog.Entry{Level: joblog.Info, Message: fmt.Sprintf("Collected %d objects", counts.Items)})
	if err != nil {
		return err
	}
	w.record.Ended = true
	return w.flush()
}

// fail notes a counted error.
func (w *worker) fail(e joblog.Entry) error {
	e.Level = joblog.Error
	w.run.Progress.noted(0, 1)
	return w.note(e)
}

// hookPrefixes are the annotations that ask for a hook around a pod's backup.
var hookPrefixes = []string{
	velerov1.AnnotationPreBackupHookPrefix, velerov1.AnnotationPostBackupHookPrefix, velerov1.AnnotationBackupHookPrefix,
}

// unserved lists the messages about what a pod's annotations ask for and this
// version does not do: one for each hook, one for each volume.
func unserved(annotations objmeta.Pairs) []string {
	var out []string
	for _, prefix := range hookPrefixes {
		var set []string
		for _, a := range annotations {
			if strings.HasPrefix(a.Key, prefix) {
				set = append(set, a.Key)
			}
		}
		if len(set) == 0 {
			continue
		}
		slices.Sort(set)
		name := set[0]
		if slices.Contains(set, prefix+"command") {
			name = prefix + "command"
		}
		out = append(out, fmt.Sprintf("annotation %s asks for a hook, which is not supported yet: it was not run", name))
	}
	for volume := range strings.SplitSeq(annotations.Get(velerov1.AnnotationBackupVolumes), ",") {
		if volume = strings.TrimSpace(volume); volume != "" {
			out = append(out, fmt.Sprintf("annotation %s asks for the data of volume %q, which is not supported yet: it was not taken",
				velerov1.AnnotationBackupVolumes, volume))
		}
	}
	return out
}
