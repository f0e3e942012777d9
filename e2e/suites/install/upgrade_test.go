//go:build node

package install

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/node"
	"github.com/holdfast-io/holdfast/e2e/harness/seed"
	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// TestUpgradesUnderLoadLoseNoBackup installs the chart and the images of an earlier commit, as
// e2e/tools/earlier.sh leaves them, upgrades to those of this checkout and goes back, while backups
// are requested all the time. Each of them is completed.
func TestUpgradesUnderLoadLoseNoBackup(t *testing.T) {
	b := newBed(t)
	root, err := testbed.RepositoryRoot()
	require.NoError(t, err)
	earlier := filepath.Join(root, ".out", "earlier")
	tag, err := os.ReadFile(filepath.Join(earlier, "tag"))
	require.NoError(t, err, "run e2e/tools/earlier.sh COMMIT")
	images, err := filepath.Glob(filepath.Join(earlier, "images", "*.tar"))
	require.NoError(t, err)
	require.NoError(t, node.Import(t.Context(), b.dir, images...))
	more := []string{"--set", "backupRunner.replicas=2", "--set", "configuration.concurrentBackups=3"}
	b.runHelm(t, filepath.Join(earlier, "chart"), "install", append(more, "--set", "image.tag="+strings.TrimSpace(string(tag)))...)
	b.awaitUsable(t)

	l := b.startLoad(t)
	l.awaitSomeCompleted(t, "before the upgrade")
	b.upgradeChart(t, more...)
	l.awaitSomeCompleted(t, "after the upgrade")
	b.runHelm(t, "", "rollback", "1")
	l.awaitSomeCompleted(t, "after the rollback")
	l.endLoad(t)
	t.Logf("%d backups", l.countRequested())
	for i := range l.countRequested() {
		b.awaitCompleted(t, loadName(i))
	}
}

// inFlight is how many requested backups have not ended, at most: some always wait, and none for long.
const inFlight = 12

// backupLoad requests backups one after the other.
type backupLoad struct {
	bed   *bed
	stop  context.CancelFunc
	done  chan struct{}
	mutex sync.Mutex
	made  int
	err   error
}

func loadName(i int) string { return fmt.Sprintf("load-%d", i) }

// startLoad begins to request a backup every half second, of one of four namespaces in turn, unless too many have not ended.
func (b *bed) startLoad(t *testing.T) *backupLoad {
	t.Helper()
	for i := range 4 {
		name := fmt.Sprintf("load-%d", i)
		b.createNamespace(t, name)
		require.NoError(t, seed.Bulk(t.Context(), b.config, seed.BulkOptions{Namespace: name, Count: 2000, Size: 500}))
	}
	ctx, stop := context.WithCancel(t.Context())
	l := &backupLoad{bed: b, stop: stop, done: make(chan struct{})}
	go l.runLoad(ctx)
	t.Cleanup(func() { stop(); <-l.done })
	return l
}

func (l *backupLoad) runLoad(ctx context.Context) {
	defer close(l.done)
	for ticker := time.NewTicker(500 * time.Millisecond); ; {
		i := l.countRequested()
		err := l.awaitEnd(ctx, i-inFlight)
		if err == nil {
			err = l.bed.createBackup(ctx, loadName(i), fmt.Sprintf("load-%d", i%4))
		}
		l.mutex.Lock()
		if err == nil {
			l.made++
		} else if ctx.Err() == nil {
			l.err = err
		}
		failed := l.err != nil
		l.mutex.Unlock()
		if failed {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// awaitEnd waits until a backup of the load has ended; one of a negative number has.
func (l *backupLoad) awaitEnd(ctx context.Context, i int) error {
	if i < 0 {
		return nil
	}
	return wait.PollUntilContextTimeout(ctx, look, patience, true, func(ctx context.Context) (bool, error) {
		backup := &velerov1.Backup{}
		err := l.bed.client.Get(ctx, client.ObjectKey{Namespace: server, Name: loadName(i)}, backup)
		return backup.Status.Phase.Terminal(), err
	})
}

func (l *backupLoad) countRequested() int {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.made
}

// awaitSomeCompleted waits until backups that are requested from now on were completed.
func (l *backupLoad) awaitSomeCompleted(t *testing.T, when string) {
	t.Helper()
	wanted := l.countRequested() + 5
	require.Eventually(t, func() bool {
		if l.countRequested() < wanted {
			return false
		}
		backup := &velerov1.Backup{}
		err := l.bed.client.Get(t.Context(), client.ObjectKey{Namespace: server, Name: loadName(wanted - 1)}, backup)
		return err == nil && backup.Status.Phase == velerov1.BackupPhaseCompleted
	}, patience, look, "backups are completed %s", when)
}

// endLoad ends the requests, none of which may have failed.
func (l *backupLoad) endLoad(t *testing.T) {
	t.Helper()
	l.stop()
	<-l.done
	require.NoError(t, l.err)
}
