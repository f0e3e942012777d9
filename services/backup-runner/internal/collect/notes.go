package collect

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/pkg/objmeta"
	"github.com/holdfast-io/holdfast/pkg/resource"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/volume"
)

// source is what the log lines of a backup name as their origin.
const source = "holdfast/backup-runner"

// begin records what is decided for the whole backup: its revision, its units,
// and how the log begins, with the API groups that do not answer. It is durable
// before anything is collected, so that no later holder decides anew.
func (w *worker) begin(ctx context.Context) error {
	r := w.run
	unbound, err := w.bind(ctx, nil) // first: plugins may be slow to answer, and a cut grows old
	if err != nil {
		return err
	}
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
	for _, warning := range r.Actions.Warnings {
		r.Progress.noted(1, 0)
		if err := w.note(joblog.Entry{Level: joblog.Warning, Message: warning}); err != nil {
			return err
		}
	}
	for _, f := range r.Catalog.Failures() {
		if err := w.unanswered(&f); err != nil {
			return err
		}
	}
	start := &checkpoint.Start{LiveNamespaces: live, Unbound: unbound}
	for _, l := range plan(r.Filter, r.Catalog, live) {
		start.Kinds = append(start.Kinds, l.name())
	}
	w.record.Start, r.past.start = start, start
	return w.flush()
}

// unanswered notes that a group version could not be discovered: an error if the
// filters may select objects of it.
func (w *worker) unanswered(f *resource.GroupFailure) error {
	if w.run.Filter.MayTakeFrom(f.GroupVersion) {
		return w.fail(joblog.Entry{
			Message: fmt.Sprintf("API group %s does not answer: its objects are not backed up", f.GroupVersion), Err: f.Err.Error()})
	}
	return w.note(joblog.Entry{Level: joblog.Info,
		Message: fmt.Sprintf("API group %s does not answer; the filters select nothing of it", f.GroupVersion), Err: f.Err.Error()})
}

// goOn prepares a holder that takes over.
func (w *worker) goOn(ctx context.Context) error {
	if err := w.run.rediscover(ctx); err != nil {
		return err
	}
	_, err := w.bind(ctx, w.run.past.start.Unbound)
	return err
}

// end notes that everything was listed, once everything is durable.
func (w *worker) end() error {
	if err := w.drain(); err != nil {
		return err
	}
	if w.run.past.ended {
		return w.flush()
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

// about is a log entry about an object.
func about(gr schema.GroupResource, namespace, name, message string, err error) joblog.Entry {
	e := joblog.Entry{Message: message, Scoped: true, Namespace: namespace, Resource: gr.String(), Name: name}
	if err != nil {
		e.Err = err.Error()
	}
	return e
}

// remarks returns what is to be said about a stored pod, claim or volume: what a
// pod's annotations ask for in vain, and what becomes of a claim's volume, unless
// that is decided once everything is collected.
func (r *run) remarks(gr schema.GroupResource, m *objmeta.Meta, raw []byte) (entries []joblog.Entry, _ *volume.Info) {
	switch gr {
	case podGR:
		for _, message := range unserved(m.Annotations) {
			e := about(gr, m.Namespace, m.Name, message, nil)
			e.Level = joblog.Error
			entries = append(entries, e)
		}
	case claimGR:
		return r.claim(m, raw)
	case volumeGR:
		if r.Snapshots != nil {
			return nil, &volume.Info{PVName: strings.Clone(m.Name), Pending: true}
		}
	}
	return entries, nil
}

func (r *run) claim(m *objmeta.Meta, raw []byte) ([]joblog.Entry, *volume.Info) {
	byChoice := r.facts.claimsByChoice
	info, err := volume.Skipped(raw, byChoice)
	if err != nil {
		e := about(claimGR, m.Namespace, m.Name, "the volume of this claim is unknown", err)
		e.Level = joblog.Error
		return []joblog.Entry{e}, nil
	}
	info.PVCName, info.PVCNamespace = strings.Clone(m.Name), strings.Clone(m.Namespace)
	if byChoice {
		return nil, &info
	}
	if r.Snapshots != nil && info.PVName != "" {
		return nil, &volume.Info{PVCName: info.PVCName, PVCNamespace: info.PVCNamespace, PVName: info.PVName, Pending: true}
	}
	e := about(claimGR, m.Namespace, m.Name, "volume data was not backed up: "+info.SkippedReason, nil)
	e.Level = joblog.Warning
	return []joblog.Entry{e}, &info
}
