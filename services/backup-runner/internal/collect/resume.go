package collect

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/kube/retry"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/history"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/plan"
)

// readRecords reads what earlier holders recorded, one after the other, and hands it on.
func (r *collectRun) readRecords(ctx context.Context) error {
	name, uid := r.job.Backup.Name, string(r.job.Backup.UID)
	records, err := checkpoint.Open(ctx, r.job.Store, name, uid, r.job.Epoch)
	if err != nil {
		return err
	}
	r.intents = history.NewLog(records)
	keys := records.Earlier()
	err = checkpoint.Each(ctx, r.job.Store, name, uid, keys, func(key string, rec *checkpoint.Record) error {
		r.past.Add(key, rec)
		r.facts.Replay(rec)
		if rec.Covers() {
			r.results.addSealed(key, &rec.Part)
		}
		r.job.Progress.Restore(rec.Part.Items, rec.Part.Warnings, rec.Part.Errors)
		return nil
	})
	if err != nil {
		return fmt.Errorf("read what was collected before: %w", err)
	}
	if len(keys) > 0 {
		r.job.Cut.Restore(r.past.Revisions)
		r.cfg.Log.InfoContext(ctx, "Resumed collection", "records", len(keys), "items", r.results.sum.Items)
	}
	failpoint.Hit("backup-runner/resumed")
	return nil
}

// maxDiscoveries is how often a holder that takes over discovers the cluster while a group does not
// answer of which something is left to be collected.
const maxDiscoveries = 5

// awaitMissingGroups waits a while for groups of which something is left to be collected and that do not
// answer: an aggregated server that restarts has not gone.
func (r *collectRun) awaitMissingGroups(ctx context.Context) error {
	pause := time.Second
	for n := 1; n < maxDiscoveries && r.job.Discover != nil && r.hasMissingGroups(); n++ {
		if err := retry.Pause(ctx, r.cfg.Clock, pause); err != nil {
			return err
		}
		pause *= 2
		catalog, filter, err := r.job.Discover(ctx)
		if err != nil {
			return fmt.Errorf("discover resources: %w", err)
		}
		r.job.Catalog, r.job.Filter = catalog, filter
	}
	return nil
}

// hasMissingGroups reports whether kinds are left whose group does not answer.
func (r *collectRun) hasMissingGroups() bool {
	return slices.ContainsFunc(r.past.Start.Kinds, func(kind checkpoint.Kind) bool {
		return plan.Missing(kind, r.job.Catalog, r.job.Filter, r.past.Units.Done)
	})
}

// readRecord reads one record of an earlier holder.
func (r *collectRun) readRecord(ctx context.Context, key string) (found checkpoint.Record, err error) {
	err = checkpoint.Each(ctx, r.job.Store, r.job.Backup.Name, string(r.job.Backup.UID), []string{key}, func(_ string, rec *checkpoint.Record) error {
		found = *rec
		return nil
	})
	return found, err
}
