package job

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"k8s.io/utils/clock"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/storedplan"
	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	backupv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/backup/v1"
)

// planProgressPeriod is how often a dry run tells how far it is.
const planProgressPeriod = 500 * time.Millisecond

// PlanBackup implements the RPC.
func (s *Server) PlanBackup(req *backupv1.PlanBackupRequest, stream grpc.ServerStreamingServer[backupv1.PlanBackupResponse]) error {
	b := &velerov1.Backup{}
	text, err := protojson.Marshal(req.GetBackup())
	if err == nil {
		err = json.Unmarshal(text, b)
	}
	switch {
	case err != nil:
		return errgrpc.Field("backup", "%v", err)
	case b.Spec.StorageLocation == "":
		return errgrpc.Field("backup.spec.storageLocation", "is missing: CheckBackup of QueueService completes a backup")
	}
	b.Namespace = s.source.Namespace
	ctx, cancel := context.WithCancelCause(stream.Context())
	defer cancel(nil)
	progress := &planProgress{clock: s.source.Clock, cancel: cancel, send: func(objects int64) error {
		return stream.Send(&backupv1.PlanBackupResponse{Content: &backupv1.PlanBackupResponse_Progress{Progress: &backupv1.PlanProgress{Objects: objects}}})
	}}
	run := &DryRun{Backup: b, Namespaces: req.GetNamespaces(), Messages: req.GetMessages(), Progress: progress.sendObjects}
	if req.GetObjects() {
		run.Row = func(r *storedplan.Row) error {
			return stream.Send(&backupv1.PlanBackupResponse{Content: &backupv1.PlanBackupResponse_Object{Object: r.Proto()}})
		}
	}
	found, err := s.kind.PlanBackup(ctx, run)
	if err != nil {
		return err
	}
	summary := summarizePlan(found)
	if summary.Plan, err = found.Header.Proto(found.Unstored); err != nil {
		return err
	}
	return stream.Send(&backupv1.PlanBackupResponse{Content: &backupv1.PlanBackupResponse_Summary{Summary: summary}})
}

// planProgress sends how far a dry run is.
type planProgress struct {
	send   func(objects int64) error
	clock  clock.PassiveClock
	cancel context.CancelCauseFunc
	told   time.Time
}

// sendObjects sends the number of objects, unless it did so a moment ago. Where nobody listens any more the dry run ends.
func (p *planProgress) sendObjects(objects int64) {
	now := p.clock.Now()
	if now.Sub(p.told) < planProgressPeriod {
		return
	}
	p.told = now
	if err := p.send(objects); err != nil {
		p.cancel(err)
	}
}

// summarizePlan is the summary of a dry run, its counts sorted by name.
func summarizePlan(found *Planned) *backupv1.PlanSummary {
	s := &backupv1.PlanSummary{HookedPods: found.HookedPods, ActionsNotCalled: found.NotCalled, SizesFrom: found.SizesFrom}
	for _, kind := range slices.Sorted(maps.Keys(found.Kinds)) {
		c := &backupv1.PlanCount{Name: kind, Objects: found.Kinds[kind].Objects, LeftOut: found.Kinds[kind].LeftOut}
		if size, known := found.Sizes[kind]; known {
			c.Bytes = &size
		}
		s.Kinds = append(s.Kinds, c)
	}
	for _, namespace := range slices.Sorted(maps.Keys(found.Namespaces)) {
		s.Namespaces = append(s.Namespaces, &backupv1.PlanCount{Name: namespace, Objects: found.Namespaces[namespace]})
	}
	for _, v := range found.Volumes {
		s.Volumes = append(s.Volumes, &backupv1.PlanVolume{Volume: v.Name, Claim: v.Claim, Taken: v.Taken, Reason: v.Reason})
	}
	return s
}
