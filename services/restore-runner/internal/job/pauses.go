package job

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/pkg/restoreorder"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/pause"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore"
)

// pauses returns the rules by which objects are created paused: those that the first holder had, else the ones of now. Only the
// order of stages has any, and only while records are durable: nothing else says how a mark was. A key of the ConfigMap that
// holds no rule is an error of the restore.
func (j *job) pauses(ctx context.Context, order restoreorder.Order) (pause.Rules, error) {
	if planned := j.records.head.Planned; planned != nil {
		return planned.Pauses, nil
	}
	if order != restoreorder.Stages || j.records.readOnly {
		return nil, nil
	}
	more := &corev1.ConfigMap{}
	err := j.retry(ctx, "read ConfigMap "+pause.ConfigMap, func() error {
		err := j.cfg.Reader.Get(ctx, client.ObjectKey{Namespace: j.cfg.Namespace, Name: pause.ConfigMap}, more)
		return client.IgnoreNotFound(err)
	})
	if err != nil {
		return nil, fmt.Errorf("read ConfigMap %s: %w", pause.ConfigMap, err)
	}
	rules, errs := pause.Parse(more.Data)
	for _, err := range errs {
		j.recorder.Error(outcome.General, err.Error())
	}
	return rules, nil
}

// unpause ends the pauses of a restore that ends here, be it with a failure, cancelled or deleted. One that is handed over, or
// lost, leaves them to its next holder, who finds them in the records. The error is the cause of ctx's end.
func (j *job) unpause(ctx context.Context, failure error) error {
	var verdict *fatalError
	ends := failure == nil || errors.As(failure, &verdict) || errors.Is(failure, errDeleted)
	if !ends || ctx.Err() != nil || j.records.head.Finished != nil {
		return nil
	}
	if !j.ready.Load() {
		j.recallPaused(ctx)
	}
	return restore.Resume(ctx, restore.Config{
		UID: j.restore.UID, Recorder: j.recorder, REST: j.cfg.REST, Clock: j.cfg.Clock, Confirm: j.confirm,
	})
}

// recallPaused reads what earlier holders left paused, where the records were not replayed: the backup cannot be read any more.
func (j *job) recallPaused(ctx context.Context) {
	for _, key := range j.records.earlier {
		data, err := j.readRecord(ctx, j.records, key)
		if err == nil {
			err = j.recorder.RecallPaused(data)
		}
		if err != nil {
			j.recorder.Error(outcome.General, fmt.Sprintf("objects may still be paused that the restore created: read %s: %v", key, err))
			return
		}
	}
}
