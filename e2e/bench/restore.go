package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-io/holdfast/e2e/harness/fleet"
	"github.com/holdfast-io/holdfast/e2e/harness/seed"
)

// restoreRounds is how often the raw requests and the restore follow one another; the fastest of
// each counts, because single times are noisy.
const restoreRounds = 2

// measureRestore compares a restore with the same creates and patches made directly.
// seed.OwnedPercent of the objects have an owner.
func (b *bench) measureRestore(ctx context.Context, services *fleet.Fleet, size int) error {
	var raw, restored time.Duration
	source := namespaceOf(size) + "-owned"
	for round := range restoreRounds {
		namespace := source
		if round > 0 {
			namespace = fmt.Sprintf("%s-%d", source, round)
		}
		if err := b.jobs.createNamespace(ctx, namespace); err != nil {
			return err
		}
		began := time.Now()
		if err := seed.CreateOwned(ctx, b.cluster.RestConfig(), namespace, size, objectBytes); err != nil {
			return err
		}
		raw = shorterTime(raw, time.Since(began))
		if round == 0 {
			if _, err := b.jobs.runBackup(ctx, source, source); err != nil {
				return err
			}
		}
		name := nameRestore(source, round)
		took, err := b.jobs.runRestore(ctx, name, source, map[string]string{source: name})
		if err != nil {
			return err
		}
		restored = shorterTime(restored, took)
	}
	peak, err := peakRSS(services.Of("restore-runner")[0].Pid())
	if err != nil {
		return err
	}
	b.figures.Set(fmt.Sprintf("restore.rate_ratio.%d", size), raw.Seconds()/restored.Seconds())
	b.figures.Set(fmt.Sprintf("restore.peak_rss_mib.%d", size), peak)
	return b.measureUnchanged(ctx, source, raw, size)
}

// measureUnchanged repeats the restores of measureRestore over the objects that they made, so that there
// is nothing to create. restore.unchanged_ratio is the rate of objects relative to raw, the time of the
// same creates and patches made directly, as for restore.rate_ratio.
func (b *bench) measureUnchanged(ctx context.Context, source string, raw time.Duration, size int) error {
	var unchanged time.Duration
	for round := range restoreRounds {
		live := nameRestore(source, round)
		took, err := b.jobs.runRestore(ctx, live+"-again", source, map[string]string{source: live})
		if err != nil {
			return err
		}
		unchanged = shorterTime(unchanged, took)
	}
	b.figures.Set(fmt.Sprintf("restore.unchanged_ratio.%d", size), raw.Seconds()/unchanged.Seconds())
	return nil
}

// nameRestore names the restore of a round, and the namespace that it makes.
func nameRestore(source string, round int) string { return fmt.Sprintf("%s-copy-%d", source, round) }
