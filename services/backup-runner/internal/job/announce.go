package job

import (
	"context"
	"log/slog"

	"google.golang.org/protobuf/types/known/timestamppb"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	eventv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/event/v1"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/finalize"
)

// announceBegun counts and announces a backup whose first holder this process is.
func (k *Kind) announceBegun(ctx context.Context, log *slog.Logger, b *velerov1.Backup) {
	k.Counts.Begun(b)
	k.publishPhase(ctx, log, b)
}

// announceEnded counts, announces and records the terminal phase that was written.
func (k *Kind) announceEnded(ctx context.Context, log *slog.Logger, b *velerov1.Backup, contents finalize.Contents) {
	k.Counts.Ended(b)
	k.publishPhase(ctx, log, b)
	mark.RecordEnd(k.Recorder, b)
	log.InfoContext(ctx, "Backup finished", "phase", b.Status.Phase, "items", contents.Items,
		"warnings", b.Status.Warnings, "errors", b.Status.Errors, "reason", b.Status.FailureReason)
}

// publishPhase publishes the phase. A receiver that misses it reads the object.
func (k *Kind) publishPhase(ctx context.Context, log *slog.Logger, b *velerov1.Backup) {
	err := k.Events.PublishEvent(ctx, &eventv1.Event{
		Kind: "Backup", Namespace: b.Namespace, Name: b.Name, Uid: string(b.UID),
		Phase: string(b.Status.Phase), Time: timestamppb.New(k.Clock.Now()),
	})
	if err != nil {
		log.DebugContext(ctx, "Failed to publish event; receivers have to read the object", "phase", b.Status.Phase, "error", err)
	}
}
