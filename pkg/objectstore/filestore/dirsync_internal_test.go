package filestore

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A call during a sync of a directory gets a sync that begins afterwards, shared with all other
// calls meanwhile: no deletion or write is taken for durable by a sync that began before it.
func TestCallersShareTheNextSyncOfADirectory(t *testing.T) {
	const callers = 50
	var mu sync.Mutex
	count := map[string]int{}
	began, goOn := make(chan struct{}), make(chan struct{})
	s := dirSyncs{dirs: map[string]*dirSync{}, sync: func(dir string) error {
		mu.Lock()
		count[dir]++
		first := dir == "a" && count[dir] == 1
		mu.Unlock()
		if first {
			close(began)
			<-goOn
		}
		return nil
	}}
	var group sync.WaitGroup
	group.Go(func() { require.NoError(t, s.syncDir("a")) })
	<-began
	for range callers {
		group.Go(func() { require.NoError(t, s.syncDir("a")) })
	}
	require.NoError(t, s.syncDir("b"), "another directory does not wait")
	require.Eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.dirs["a"].users == callers+1
	}, time.Minute, time.Millisecond)
	close(goOn)
	group.Wait()
	require.Equal(t, 2, count["a"])
	require.Equal(t, 1, count["b"])
	require.Empty(t, s.dirs)
}

func TestEveryCallerHearsOfAFailedSync(t *testing.T) {
	broken := errors.New("input/output error")
	s := dirSyncs{dirs: map[string]*dirSync{}, sync: func(string) error { return broken }}
	var group sync.WaitGroup
	for range 10 {
		group.Go(func() { require.ErrorIs(t, s.syncDir("a"), broken) })
	}
	group.Wait()
	require.Empty(t, s.dirs)
}
