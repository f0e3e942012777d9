package fleet

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
)

// Revive starts a process in the place of every member that has ended, whatever its end was, and
// returns the new members when they are ready. Not safe for concurrent use.
func (f *Fleet) Revive(ctx context.Context) ([]*Member, error) {
	var revived []*Member
	for i, m := range f.Members {
		select {
		case <-m.Done():
		default:
			continue
		}
		next, err := f.startMember(m.Service, m.place)
		if err != nil {
			return nil, err
		}
		f.Members[i] = next
		revived = append(revived, next)
	}
	ctx, cancel := context.WithTimeout(ctx, testbed.Patience)
	defer cancel()
	for _, m := range revived {
		if err := waitMember(ctx, m); err != nil {
			return nil, err
		}
	}
	return revived, nil
}

func waitMember(ctx context.Context, m *Member) error {
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for !isReady(ctx, m) {
		select {
		case <-m.Done():
			return fmt.Errorf("%s ended (%s):\n%s", m.Service, fmt.Sprint(m.Err()), testbed.Tail(m.LogPath(), 15))
		case <-ctx.Done():
			return fmt.Errorf("%s does not get ready: %w:\n%s", m.Service, ctx.Err(), testbed.Tail(m.LogPath(), 15))
		case <-ticker.C:
		}
	}
	return nil
}

// Ready reports whether a member reports that it is ready.
func (f *Fleet) Ready(ctx context.Context, m *Member) bool { return isReady(ctx, m) }
