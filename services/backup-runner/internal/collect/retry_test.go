package collect

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
)

func TestThePoolOfBlockWorkersIsBounded(t *testing.T) {
	const workers = 3
	var mu sync.Mutex
	running, most := 0, 0
	all := make(chan struct{})
	gauge := &fakeAction{name: "a.io/gauge", do: func(ctx context.Context, _ action.Identity, _ *action.Object) (action.BackupResult, error) {
		mu.Lock()
		running++
		if most = max(most, running); most == workers {
			select {
			case <-all:
			default:
				close(all)
			}
		}
		mu.Unlock()
		defer func() {
			mu.Lock()
			running--
			mu.Unlock()
		}()
		select {
		case <-all:
		case <-ctx.Done():
		}
		return action.BackupResult{}, ctx.Err()
	}}
	s := newSetup(t, newEstateServer(), fiftyConfigMaps(), "a").addActions(gauge)
	s.cfg.Workers, s.cfg.BlockWorkers = 5, workers
	res, _ := s.runJob(t)
	require.Zero(t, res.Errors)
	require.Equal(t, 50, gauge.calledOnceEach(t))
	require.Equal(t, workers, most)
}

// While a call is repeated whose process died, no other worker gets on, for as long as a call may
// take.
func TestARepeatedCallDoesNotStopTheOtherWorkers(t *testing.T) {
	crash := errors.New("plugin process died")
	var mu sync.Mutex
	seen, rest := map[string]int{}, make(chan struct{})
	slow := &fakeAction{name: "a.io/slow"}
	slow.do = func(ctx context.Context, id action.Identity, _ *action.Object) (action.BackupResult, error) {
		mu.Lock()
		seen[id.Name]++
		first := seen[id.Name] == 1
		if len(seen) == 50 {
			select {
			case <-rest:
			default:
				close(rest)
			}
		}
		mu.Unlock()
		switch {
		case id.Name != "cm-000":
			return action.BackupResult{}, nil
		case first:
			return action.BackupResult{}, crash
		}
		select {
		case <-rest:
			return action.BackupResult{}, nil
		case <-time.After(time.Minute):
			return action.BackupResult{}, errors.New("the others wait")
		}
	}
	s := newSetup(t, newEstateServer(), fiftyConfigMaps(), "a").addActions(slow)
	s.job.Actions.IsProcessCrash = func(err error) bool { return errors.Is(err, crash) }
	s.cfg.Workers, s.cfg.BlockWorkers = 1, 2
	res, _ := s.runJob(t)
	require.Zero(t, res.Errors)
}
