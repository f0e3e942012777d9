package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/fleet"
	holdfast "github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/pkg/objectstore/filestore"
)

const (
	operationsPerBackup = 20
	operationsMonitors  = 2
	operationsInterval  = 10 * time.Second // that of the monitors
	operationsMeasured  = 6                // intervals
	operationsPlugin    = "operations"     // the name of the binary
	operationsAction    = "bench.example.com/operation"
	operationsName      = "operations-" // and a number
)

// polledBench measures the monitors beside open operations of many backups. Their lists are written as a
// runner seals them; the plugin notes when it is asked about which.
type polledBench struct {
	*bench
	dir string // in which the plugin notes
}

func (b *bench) measureOperations(ctx context.Context, total int) (err error) {
	_, _ = fmt.Fprintf(b.Log, "%d open operations in %d backups\n", total, total/operationsPerBackup)
	plugins, err := b.pluginDir(operationsPlugin)
	if err != nil {
		return err
	}
	p := &polledBench{bench: b, dir: filepath.Join(plugins, "..", operationsPlugin+"-polls")}
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, b.jobs.client.DeleteAllOf(context.WithoutCancel(ctx), &velerov1.Backup{}, client.InNamespace(serverNamespace)))
	}()
	config := fleet.Config{
		Args:   map[string][]string{"async-operation-monitor": {"--plugin-dir", plugins, "--item-operation-sync-frequency", operationsInterval.String()}},
		Counts: map[string]int{"queue-scheduler": -1, "backup-runner": -1, "restore-runner": -1, "deletion": -1, "volume-mover": -1, "async-operation-monitor": operationsMonitors}, // -1 is none
	}
	return b.withFleet(ctx, config, func(services *fleet.Fleet) error {
		if err := p.createWaiting(ctx, total); err != nil {
			return err
		}
		return p.measurePolls(ctx, services.Of("async-operation-monitor"), total)
	})
}

// createWaiting makes the backups that wait.
func (p *polledBench) createWaiting(ctx context.Context, total int) error {
	store, err := filestore.Open(filepath.Join(p.Dir, "objects", bucket))
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }() // nothing is open
	numbers := make(chan int)
	errs := make([]error, queueWorkers)
	var group sync.WaitGroup
	for w := range queueWorkers {
		group.Go(func() {
			for i := range numbers {
				if errs[w] == nil {
					errs[w] = p.createWaitingBackup(ctx, store, i)
				}
			}
		})
	}
	for i := range total / operationsPerBackup {
		numbers <- i
	}
	close(numbers)
	group.Wait()
	return errors.Join(errs...)
}

// createWaitingBackup makes a backup as its runner leaves it, with the sealed list of its operations: the list
// needs the UID, so the phase in which they are polled comes last.
func (p *polledBench) createWaitingBackup(ctx context.Context, store *filestore.Store, number int) error {
	b := &velerov1.Backup{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: serverNamespace, Name: fmt.Sprintf(operationsName+"%05d", number),
			Annotations: map[string]string{holdfast.AnnotationQueueSequence: strconv.Itoa(number + 1)}, // without it, it is another server's
		},
		Spec:   velerov1.BackupSpec{StorageLocation: "default", ItemOperationTimeout: metav1.Duration{Duration: time.Hour}},
		Status: velerov1.BackupStatus{Phase: velerov1.BackupPhaseInProgress},
	}
	if err := p.jobs.client.Create(ctx, b); err != nil {
		return err
	}
	list := operation.List{Job: operation.Job{Kind: operation.KindBackup, Name: b.Name, UID: string(b.UID)}, Epoch: 1}
	for i := range operationsPerBackup {
		name := fmt.Sprintf("%s-%02d", b.Name, i)
		list.Operations = append(list.Operations, operation.Operation{
			Action: operationsAction, Kind: "AsyncBackupItemAction", ID: name, Key: name, Created: time.Now(),
			Item: operation.Resource{Resource: "persistentvolumeclaims", Namespace: "bench", Name: name},
		})
	}
	if _, err := operation.Seal(ctx, store, list); err != nil {
		return err
	}
	before := b.DeepCopy()
	b.Status.Phase = velerov1.BackupPhaseWaitingForPluginOperations
	return p.jobs.client.Patch(ctx, b, client.MergeFrom(before))
}

// measurePolls waits until every operation was asked about, and then measures for a while.
func (p *polledBench) measurePolls(ctx context.Context, monitors []*fleet.Member, total int) error {
	ctx, cancel := context.WithTimeout(ctx, jobTimeout)
	defer cancel()
	err := pollUntil(ctx, time.Second, func() (bool, error) {
		polls, err := readPolls(p.dir)
		return len(polls.of) == total, err
	})
	if err != nil {
		return fmt.Errorf("first polls: %w", err)
	}
	began := time.Now()
	if err := pollUntil(ctx, time.Second, func() (bool, error) { return time.Since(began) >= operationsMeasured*operationsInterval, nil }); err != nil {
		return err
	}
	ended := time.Now()
	polls, err := readPolls(p.dir)
	if err != nil {
		return err
	}
	p.figures.Set(fmt.Sprintf("operations.poll_interval_ratio.%d", total), polls.longestPause(began, ended).Seconds()/operationsInterval.Seconds())
	p.figures.Set("operations.processes", float64(polls.countProcesses()))
	peak := 0.0
	for _, m := range monitors {
		rss, err := peakRSS(m.Pid())
		if err != nil {
			return err
		}
		peak = max(peak, rss)
	}
	p.figures.Set("operations.monitor_peak_rss_mib", peak)
	return nil
}
