package job

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/engine"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/pkg/kube"
)

// isDryRun reports a Backup to plan that queue-scheduler has validated and completed.
func isDryRun(b *velerov1.Backup) bool {
	return mark.IsDryRun(b, b.Status.Phase.IsNew()) && mark.IsValidated(b)
}

// endDryRun plans a Backup, and ends it with what was found. Of two processes that do so at once, both may
// store a plan, and one ends the Backup.
func (k *Kind) endDryRun(ctx context.Context, b *velerov1.Backup) (engine.Decision[*velerov1.Backup], error) {
	if !k.planning.TryAcquire(1) { // waiting would take the place of a backup
		return engine.NotNow[*velerov1.Backup]("as many dry runs as may be are being made"), nil
	}
	defer k.planning.Release(1)
	run := &DryRun{Backup: b.DeepCopy(), Messages: b.Status.ValidationErrors}
	var planned *Planned
	err := json.Unmarshal([]byte(b.Annotations[holdfast.AnnotationNamespaces]), &run.Namespaces)
	if err != nil {
		err = fmt.Errorf("metadata.annotations[%s]: %w", holdfast.AnnotationNamespaces, err)
	} else {
		planned, err = k.runDryRun(ctx, run)
	}
	var found []string
	if err == nil {
		found = mark.SummarizePlan(&planned.Header, planned.Unstored, planned.countTexts()...)
	} else if found, err = mark.FailedDryRun(ctx, err); err != nil {
		return engine.Decision[*velerov1.Backup]{}, err
	}
	return engine.End(func(b *velerov1.Backup) error {
		if !b.Status.Phase.IsNew() {
			return kube.ErrSkip
		}
		b.Status.Phase, b.Status.ValidationErrors = velerov1.BackupPhaseFailedValidation, found
		return nil
	}, k.endedUnclaimed), nil
}

// countTexts are the numbers of objects by kind, and of volumes.
func (p *Planned) countTexts() []string {
	var kinds []string
	for _, kind := range slices.Sorted(maps.Keys(p.Kinds)) {
		if count := p.Kinds[kind].Objects; count > 0 {
			kinds = append(kinds, fmt.Sprintf("%d %s", count, kind))
		}
	}
	taken := 0
	for i := range p.Volumes {
		if p.Volumes[i].Taken {
			taken++
		}
	}
	return []string{"kinds: " + strings.Join(kinds, ", "), fmt.Sprintf("volumes: data of %d would be taken, of %d not", taken, len(p.Volumes)-taken)}
}
