package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/fleet"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
	"github.com/holdfast-io/holdfast/pkg/kube"
)

const (
	queuePlaces  = 50  // backups that may run at once
	queueWorkers = 16  // requests at once, of those who submit and of the runners' stand-ins
	queueDrained = 500 // backups that run while the writes are counted, at most
	queueWalks   = 10  // walks whose time is averaged
	walkMetric   = "holdfast_queue_walk_seconds"
	queuedName   = "queue-" // and a number
)

// queueBench measures queue-scheduler before a queue of a certain length: the time of a walk while
// nothing moves, and its writes from submission to the end of a backup. Stand-ins for runners
// finish what is admitted at once.
type queueBench struct {
	*bench
	length    int
	writes    *writeMeter
	scheduler *fleet.Member
	watching  client.WithWatch
}

func (b *bench) measureQueue(ctx context.Context, length int) error {
	return b.withQueue(ctx, fmt.Sprintf("queue-%d", length), length, (*queueBench).measure)
}

// withQueue runs f beside a queue-scheduler whose requests are metered, and no runner.
func (b *bench) withQueue(ctx context.Context, name string, length int, f func(*queueBench, context.Context) error) (err error) {
	_, _ = fmt.Fprintf(b.Log, "a queue of %d backups\n", length)
	dir := filepath.Join(b.Dir, name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	q := &queueBench{bench: b, length: length}
	if q.watching, err = client.NewWithWatch(b.cluster.RestConfig(), client.Options{Scheme: kube.Scheme()}); err != nil {
		return err
	}
	if q.writes, err = startWriteMeter(b.cluster.RestConfig(), dir); err != nil {
		return err
	}
	defer q.writes.Close()
	defer func() { err = errors.Join(err, q.clearQueue(context.WithoutCancel(ctx))) }()
	config := fleet.Config{
		Args:   map[string][]string{"queue-scheduler": {"--kubeconfig", q.writes.kubeconfig, "--concurrent-backups", strconv.Itoa(queuePlaces)}},
		Counts: map[string]int{"backup-runner": -1, "restore-runner": -1, "async-operation-monitor": -1, "deletion": -1, "volume-mover": -1}, // none
	}
	return b.withFleet(ctx, config, func(services *fleet.Fleet) error {
		q.scheduler = services.Of("queue-scheduler")[0]
		return f(q, ctx)
	})
}

func (q *queueBench) measure(ctx context.Context) error {
	before := q.writes.jobs.Load()
	if err := q.submitBackups(ctx); err != nil {
		return err
	}
	running, err := q.awaitSettled(ctx)
	if err != nil {
		return err
	}
	submitted := q.length + queuePlaces
	// The admission of those that run now is left out: below, others are admitted in their place.
	perBackup := float64(q.writes.jobs.Load()-before-int64(2*running)) / float64(submitted)
	if err := q.measureWalks(ctx); err != nil {
		return err
	}
	began, before, positions, events := time.Now(), q.writes.jobs.Load(), q.writes.positions.Load(), q.writes.events.Load()
	drained, err := q.drainQueue(ctx, min(q.length, queueDrained))
	if err != nil {
		return err
	}
	took := time.Since(began)
	if _, err := q.awaitSettled(ctx); err != nil { // what ended is out of the ledger, others are in its place
		return err
	}
	perBackup += float64(q.writes.jobs.Load()-before) / float64(drained)
	q.setValue("queue.writes_per_backup", perBackup)
	q.setValue("queue.events_per_backup", float64(q.writes.events.Load()-events)/float64(drained))
	q.setValue("queue.position_writes_per_s", float64(q.writes.positions.Load()-positions)/time.Since(began).Seconds())
	q.setValue("queue.backups_per_s", float64(drained)/took.Seconds())
	return nil
}

func (q *queueBench) setValue(name string, value float64) {
	q.figures.Set(fmt.Sprintf("%s.%d", name, q.length), value)
}

// submitBackups creates the backups: each takes two namespaces that others take too.
func (q *queueBench) submitBackups(ctx context.Context) error {
	total := q.length + queuePlaces
	return q.createBackups(ctx, total, func(i int) *velerov1.Backup {
		return &velerov1.Backup{
			ObjectMeta: metav1.ObjectMeta{Namespace: serverNamespace, Name: fmt.Sprintf(queuedName+"%05d", i)},
			Spec: velerov1.BackupSpec{IncludedNamespaces: []string{
				fmt.Sprintf("team-%d", i), fmt.Sprintf("team-%d", (7*i+1)%total),
			}},
		}
	})
}

// createBackups creates as many backups as asked for, several at once.
func (b *bench) createBackups(ctx context.Context, total int, backup func(i int) *velerov1.Backup) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(queueWorkers)
	for i := range total {
		group.Go(func() error { return b.jobs.client.Create(ctx, backup(i)) })
	}
	return group.Wait()
}

// awaitSettled waits until every backup is queued and no more are admitted, and returns how many are.
func (q *queueBench) awaitSettled(ctx context.Context) (ready int, err error) {
	ctx, cancel := context.WithTimeout(ctx, jobTimeout)
	defer cancel()
	const looks = 4 // that see the same
	same := 0
	err = pollUntil(ctx, time.Second, func() (bool, error) {
		phases := map[velerov1.BackupPhase]int{}
		list := &velerov1.BackupList{}
		if err := q.jobs.client.List(ctx, list, client.InNamespace(serverNamespace)); err != nil {
			return false, err
		}
		list.Items = slices.DeleteFunc(list.Items, func(b velerov1.Backup) bool { return !strings.HasPrefix(b.Name, queuedName) }) // of other measurements
		for i := range list.Items {
			phases[list.Items[i].Status.Phase]++
			if list.Items[i].Status.Phase == velerov1.BackupPhaseFailedValidation {
				return false, notCompleted(&list.Items[i])
			}
		}
		now := phases[velerov1.BackupPhaseReadyToStart]
		if same++; now == 0 || now != ready || now+phases[velerov1.BackupPhaseQueued] != len(list.Items) {
			same = 0
		}
		ready = now
		return same >= looks, nil
	})
	return ready, err
}

// measureWalks asks for passes that find nothing to do, and takes the time of their walks from the
// service's own metric: it leaves out the calls to the API server.
func (q *queueBench) measureWalks(ctx context.Context) error {
	settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: serverNamespace, Name: "holdfast-settings"}}
	if err := client.IgnoreAlreadyExists(q.jobs.client.Create(ctx, settings)); err != nil {
		return err
	}
	first, took, err := q.readWalks(ctx)
	if err != nil {
		return err
	}
	last, later := first, took
	for n := 0; last < first+queueWalks; n++ {
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"bench":"%d"}}}`, n) // any change wakes the scheduler
		if err := q.jobs.client.Patch(ctx, settings, client.RawPatch("application/merge-patch+json", patch)); err != nil {
			return err
		}
		err := pollUntil(ctx, pollEvery, func() (bool, error) {
			now, sum, err := q.readWalks(ctx)
			done := now > last
			last, later = now, sum
			return done, err
		})
		if err != nil {
			return err
		}
	}
	q.setValue("queue.pass_ms", 1000*(later-took)/(last-first))
	return nil
}

var scrape = &http.Client{Timeout: 30 * time.Second}

// readWalks reads how many walks there were and how long they took together, in seconds.
func (q *queueBench) readWalks(ctx context.Context) (count, sum float64, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+q.scheduler.HTTP+"/metrics", nil)
	if err != nil {
		return 0, 0, err
	}
	answer, err := scrape.Do(request)
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = answer.Body.Close() }()
	lines := bufio.NewScanner(answer.Body)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), " ")
		switch name {
		case walkMetric + "_count":
			count, err = strconv.ParseFloat(value, 64)
		case walkMetric + "_sum":
			sum, err = strconv.ParseFloat(value, 64)
		}
		if err != nil {
			return 0, 0, err
		}
	}
	return count, sum, lines.Err()
}

// drainQueue ends what is admitted, until so many backups have ended, and returns how many did: a few
// more may be under way by then.
func (q *queueBench) drainQueue(ctx context.Context, wanted int) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, jobTimeout)
	defer cancel()
	var ended atomic.Int64
	ready := make(chan *velerov1.Backup, q.length+queuePlaces)
	errs := make([]error, queueWorkers)
	done := make(chan struct{})
	var once sync.Once
	var group sync.WaitGroup
	for w := range queueWorkers {
		group.Go(func() {
			for b := range ready {
				if errs[w] = q.finishBackup(ctx, b); errs[w] != nil || ended.Add(1) >= int64(wanted) {
					once.Do(func() { close(done) })
					return
				}
			}
		})
	}
	err := q.pumpReady(ctx, ready, done)
	close(ready)
	group.Wait()
	if err := errors.Join(errors.Join(errs...), err); err != nil {
		return 0, fmt.Errorf("%d of %d backups ended: %w", ended.Load(), wanted, err)
	}
	return int(ended.Load()), nil
}

// pumpReady passes on what becomes ready, each backup once, until done. A server ends watches as it
// likes; the next one begins with what there is.
func (q *queueBench) pumpReady(ctx context.Context, ready chan<- *velerov1.Backup, done <-chan struct{}) error {
	seen := map[types.UID]bool{}
	for {
		changes, err := q.watching.Watch(ctx, &velerov1.BackupList{}, client.InNamespace(serverNamespace))
		if err != nil {
			return err
		}
		for open := true; open; {
			var e watch.Event
			select {
			case e, open = <-changes.ResultChan():
			case <-done:
				changes.Stop()
				return nil
			case <-ctx.Done():
				changes.Stop()
				return ctx.Err()
			}
			if b, ok := e.Object.(*velerov1.Backup); ok && b.Status.Phase == velerov1.BackupPhaseReadyToStart && !seen[b.UID] {
				seen[b.UID] = true
				ready <- b
			}
		}
	}
}

// finishBackup is what a runner writes of a backup that takes no time.
func (q *queueBench) finishBackup(ctx context.Context, b *velerov1.Backup) error {
	for _, phase := range []velerov1.BackupPhase{velerov1.BackupPhaseInProgress, velerov1.BackupPhaseCompleted} {
		before := b.DeepCopy()
		b.Status.Phase = phase
		if err := q.jobs.client.Patch(ctx, b, client.MergeFrom(before)); err != nil {
			return err
		}
	}
	return nil
}

// clearQueue removes all backups and the ledger.
func (q *queueBench) clearQueue(ctx context.Context) error {
	return errors.Join(
		q.jobs.client.DeleteAllOf(ctx, &velerov1.Backup{}, client.InNamespace(serverNamespace)),
		client.IgnoreNotFound(q.jobs.client.Delete(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: serverNamespace, Name: ledger.Name}})),
		client.IgnoreNotFound(q.jobs.client.Delete(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: serverNamespace, Name: "holdfast-settings"}})),
	)
}
