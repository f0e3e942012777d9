package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/holdfast-io/holdfast/e2e/harness/fleet"
	backupv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/backup/v1"
)

// measurePlan measures the dry run of a backup of a namespace: its time, as a part of that of a paged raw list of
// the same objects whose answer is discarded. The plan is stored, and no rows are sent.
func (b *bench) measurePlan(ctx context.Context, size int) error {
	namespace := namespaceOf(size)
	_, _ = fmt.Fprintf(b.Log, "dry run of %d objects of %d bytes\n", size, objectBytes)
	if !b.isFilled(size) {
		if err := b.createObjects(ctx, namespace, size, objectBytes); err != nil {
			return err
		}
	}
	return b.withFleet(ctx, fleet.Config{}, func(services *fleet.Fleet) error {
		var listed, planned time.Duration
		for range backupRounds {
			took, err := rawList(ctx, b.cluster.RestConfig(), namespace)
			if err != nil {
				return err
			}
			listed = shorterTime(listed, took)
			if took, err = planOnce(ctx, services.Of("backup-runner")[0].GRPC, namespace, size); err != nil {
				return err
			}
			planned = shorterTime(planned, took)
		}
		b.figures.Set(fmt.Sprintf("plan.list_ratio.%d", size), planned.Seconds()/listed.Seconds())
		return nil
	})
}

// planOnce plans a backup of a namespace with at least that many objects.
func planOnce(ctx context.Context, address, namespace string, size int) (time.Duration, error) {
	connection, err := connectService(address)
	if err != nil {
		return 0, err
	}
	defer func() { _ = connection.Close() }()
	backup, err := structpb.NewStruct(map[string]any{"spec": map[string]any{"storageLocation": "default", "includedNamespaces": []any{namespace}}})
	if err != nil {
		return 0, err
	}
	began := time.Now()
	stream, err := backupv1.NewBackupServiceClient(connection).PlanBackup(ctx, &backupv1.PlanBackupRequest{Backup: backup, Namespaces: []string{namespace}})
	if err != nil {
		return 0, err
	}
	for {
		m, err := stream.Recv()
		if err != nil {
			return 0, err
		}
		plan := m.GetSummary().GetPlan()
		switch {
		case plan == nil:
		case plan.GetUnstored() != "":
			return 0, errors.New("the plan is not stored: " + plan.GetUnstored())
		case plan.GetCounts()["store"] < int64(size):
			return 0, fmt.Errorf("a plan of %v, want %d objects", plan.GetCounts(), size)
		default:
			return time.Since(began), nil
		}
	}
}
