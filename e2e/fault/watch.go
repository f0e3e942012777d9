package fault

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// errOverlap means that two backups of the same namespaces ran at once.
var errOverlap = errors.New("two overlapping backups ran at once")

// running are the phases in which a runner works on a backup.
var running = []velerov1.BackupPhase{
	velerov1.BackupPhaseInProgress, velerov1.BackupPhaseFinalizing, velerov1.BackupPhaseFinalizingPartiallyFailed,
}

// checkRunsAlone follows every change of the backups that begin with a name, in the order in which the API
// server made them, until n of them have ended. It is an error when two of them ran at once.
func (a *apiClient) checkRunsAlone(ctx context.Context, prefix string, n int) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	watch, err := a.client.Watch(ctx, &velerov1.BackupList{}, client.InNamespace(server))
	if err != nil {
		return err
	}
	defer watch.Stop()
	at, ended := map[string]bool{}, map[string]bool{}
	for len(ended) < n {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d of %d backups have ended: %w", len(ended), n, ctx.Err())
		case event, ok := <-watch.ResultChan():
			if !ok {
				return errors.New("the watch ended")
			}
			backup, ok := event.Object.(*velerov1.Backup)
			if !ok || !strings.HasPrefix(backup.Name, prefix) {
				continue
			}
			delete(at, backup.Name)
			if slices.Contains(running, backup.Status.Phase) {
				at[backup.Name] = true
			}
			if backup.Status.Phase.Terminal() {
				ended[backup.Name] = true
			}
			if len(at) > 1 {
				return fmt.Errorf("%w: %v", errOverlap, at)
			}
		}
	}
	return nil
}
