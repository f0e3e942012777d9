package fleet

import (
	"context"
	"fmt"
	"slices"
)

// Restart ends a member by SIGTERM, as a rolling update does, starts a process in its place
// and returns it when all members are ready. A member that ends with an error, or that has to be
// killed, is an error. Not safe for concurrent use.
func (f *Fleet) Restart(ctx context.Context, m *Member) (*Member, error) {
	i := slices.Index(f.Members, m)
	if i < 0 {
		return nil, fmt.Errorf("restart %s: not a member", m.Service)
	}
	m.Stop(stopGrace)
	if err := m.Err(); err != nil {
		return nil, fmt.Errorf("restart %s: it did not end well: %w", m.Service, m.EarlyEnd())
	}
	next, err := f.startMember(m.Service, m.place)
	if err != nil {
		return nil, fmt.Errorf("restart %s: %w", m.Service, err)
	}
	f.Members[i] = next
	if err := f.waitReady(ctx); err != nil {
		return nil, err
	}
	return f.Members[i], nil
}
