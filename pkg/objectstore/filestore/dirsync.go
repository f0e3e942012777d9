package filestore

import "sync"

// dirSyncs makes directories durable. Callers who come to one directory while it is being synced
// share the next sync of it, so that many small writes and deletions at once cost few syncs. Safe
// for concurrent use.
type dirSyncs struct {
	sync func(dir string) error

	mu   sync.Mutex
	dirs map[string]*dirSync
}

// dirSync is a directory that is being synced or waited for.
type dirSync struct {
	running sync.Mutex // held during a sync
	next    *syncRound // begins when the running one has ended; nil when nothing waits for one
	users   int
}

// syncRound is one sync and its outcome.
type syncRound struct {
	done chan struct{}
	err  error
}

// syncDir returns the outcome of a sync of dir that began after the call.
func (s *dirSyncs) syncDir(dir string) error {
	d, round, mine := s.joinRound(dir)
	defer s.leaveDir(dir, d)
	if !mine {
		<-round.done
		return round.err
	}
	d.running.Lock()
	defer d.running.Unlock()
	s.mu.Lock()
	d.next = nil // who comes now needs another one
	s.mu.Unlock()
	defer close(round.done)
	round.err = s.sync(dir)
	return round.err
}

// joinRound returns the next round of a directory, and whether the caller has to run it.
func (s *dirSyncs) joinRound(dir string) (d *dirSync, round *syncRound, mine bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d = s.dirs[dir]
	if d == nil {
		d = &dirSync{}
		s.dirs[dir] = d
	}
	d.users++
	if d.next == nil {
		d.next, mine = &syncRound{done: make(chan struct{})}, true
	}
	return d, d.next, mine
}

// leaveDir removes a directory without users.
func (s *dirSyncs) leaveDir(dir string, d *dirSync) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.users--; d.users == 0 {
		delete(s.dirs, dir)
	}
}
