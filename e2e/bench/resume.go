package bench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/holdfast-io/holdfast/e2e/harness/fleet"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/layout"
)

// lookEvery is how exactly the kill hits its moment and the takeover is timed.
const lookEvery = 2 * time.Millisecond

// resumeBench is a bench of a backup that loses its runner. Runners reach the API server and the bucket
// through meters only.
type resumeBench struct {
	*bench
	lists    *listMeter
	store    *storeMeter
	services *fleet.Fleet
}

// backupWork is what one backup cost.
type backupWork struct {
	listed  int64 // objects in answers to lists
	written int64 // bytes sent to the bucket
}

// measureResume measures what the death of the runner at half of a backup costs, beside the same backup
// undisturbed.
func (b *bench) measureResume(ctx context.Context, size int) (err error) {
	_, _ = fmt.Fprintf(b.Log, "%d objects, the runner killed at half\n", size)
	if !b.isFilled(size) {
		if err := b.createObjects(ctx, namespaceOf(size), size, objectBytes); err != nil {
			return err
		}
	}
	dir := filepath.Join(b.Dir, "resume")
	server, store, err := startMeteredS3(ctx, dir)
	if err != nil {
		return err
	}
	defer server.Stop()
	defer store.Close()
	r := &resumeBench{bench: b, store: store}
	if r.lists, err = startListMeter(b.cluster.RestConfig(), dir); err != nil {
		return err
	}
	defer r.lists.Close()
	args := []string{"--kubeconfig", r.lists.kubeconfig, "--claim-timeout", b.ClaimTimeout.String()}
	return b.withFleet(ctx, fleet.Config{Replicas: 2, Args: map[string][]string{"backup-runner": args}}, func(services *fleet.Fleet) error {
		r.services = services
		if err := b.jobs.meteredLocation(ctx, meteredLocation, server, r.store); err != nil {
			return err
		}
		return r.compareRuns(ctx, size)
	})
}

const meteredLocation = "metered"

// compareRuns runs the two backups.
func (r *resumeBench) compareRuns(ctx context.Context, size int) error {
	namespace := namespaceOf(size)
	var whole, halved *velerov1.Backup
	undisturbed, err := r.measureRun(ctx, "undisturbed", namespace, func(b *velerov1.Backup) error {
		whole = b
		return nil
	})
	if err != nil {
		return err
	}
	half := r.lists.objects.Load() + undisturbed.listed/2
	disturbed, err := r.measureRun(ctx, "killed", namespace, func(b *velerov1.Backup) error {
		halved = b
		return r.killRunnerAt(ctx, b, half)
	})
	if err != nil {
		return err
	}
	if a, b := whole.Status.Progress, halved.Status.Progress; a == nil || b == nil || *a != *b {
		return fmt.Errorf("the backup that was taken over has other counts: %v, undisturbed %v", b, a)
	}
	listed := float64(disturbed.listed) / float64(undisturbed.listed)
	written := float64(disturbed.written) / float64(undisturbed.written)
	r.figures.Set(fmt.Sprintf("resume.listed_ratio.%d", size), listed)
	r.figures.Set(fmt.Sprintf("resume.written_ratio.%d", size), written)
	r.figures.Set(fmt.Sprintf("resume.work_ratio.%d", size), max(listed, written))
	return nil
}

// measureRun runs a backup to its end, beside meanwhile, and returns what it cost.
func (r *resumeBench) measureRun(ctx context.Context, name, namespace string, meanwhile func(*velerov1.Backup) error) (backupWork, error) {
	ctx, cancel := context.WithTimeout(ctx, jobTimeout)
	defer cancel()
	before := r.lists.objects.Load()
	backup, err := r.jobs.createBackup(ctx, name, namespace, meteredLocation)
	if err != nil {
		return backupWork{}, err
	}
	if err := meanwhile(backup); err != nil {
		return backupWork{}, err
	}
	if err := r.jobs.awaitCompleted(ctx, backup); err != nil {
		return backupWork{}, err
	}
	return backupWork{listed: r.lists.objects.Load() - before, written: r.store.sentBytes(layout.BackupDir(name))}, nil
}

// killRunnerAt kills the runner that holds the backup when so many objects were listed, and times the
// takeover: to the claim of another instance, and to that one's first record of progress in the
// bucket.
func (r *resumeBench) killRunnerAt(ctx context.Context, backup *velerov1.Backup, listed int64) error {
	err := pollUntil(ctx, lookEvery, func() (bool, error) { return r.lists.objects.Load() >= listed, nil })
	if err != nil {
		return err
	}
	holder, held, err := r.readClaim(ctx, backup)
	if err != nil || held == nil {
		return errors.Join(err, fmt.Errorf("no runner holds the backup in phase %q at half of its objects", backup.Status.Phase))
	}
	held.Kill()
	killed := time.Now()
	var successor claim.Claim
	err = pollUntil(ctx, pollEvery, func() (bool, error) {
		var by *fleet.Member
		successor, by, err = r.readClaim(ctx, backup)
		return by != nil && successor.Epoch > holder.Epoch, err
	})
	if err != nil {
		return fmt.Errorf("takeover: %w", err)
	}
	r.figures.Set("resume.claim_timeout_s", r.ClaimTimeout.Seconds())
	r.figures.Set("resume.takeover_s", time.Since(killed).Seconds())
	records := layout.Checkpoint(backup.Name, string(backup.UID), successor.Epoch, 1)
	if err := pollUntil(ctx, lookEvery, func() (bool, error) { return !r.store.firstSeen(records).IsZero(), nil }); err != nil {
		return fmt.Errorf("first record after the takeover: %w", err)
	}
	r.figures.Set("resume.first_record_s", r.store.firstSeen(records).Sub(killed).Seconds())
	return nil
}

// readClaim returns the claim of the backup and the running member that it names, nil when it names
// none.
func (r *resumeBench) readClaim(ctx context.Context, backup *velerov1.Backup) (claim.Claim, *fleet.Member, error) {
	if err := r.jobs.readObject(ctx, backup); err != nil {
		return claim.Claim{}, nil, err
	}
	c, _, err := claim.Parse(backup)
	if err != nil {
		return c, nil, err
	}
	for _, m := range r.services.Of("backup-runner") {
		if m.GRPC == c.Address {
			return c, m, nil
		}
	}
	return c, nil, nil
}
