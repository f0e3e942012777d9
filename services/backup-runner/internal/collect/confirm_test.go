package collect

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
)

// leaping is a clock that stands still between leaps.
type leaping struct {
	clock.RealClock
	ahead atomic.Int64
}

func (c *leaping) Now() time.Time { return time.Unix(1700000000, c.ahead.Load()) }

// A runner that was paused while an action worked on one object calls none for the next one:
// another holder may be at it. Nor does it announce a call.
func TestAPausedRunnerCallsNoAction(t *testing.T) {
	for name, of := range map[string]func(*fakeAction) action.BackupItem{
		"repeatable":          func(f *fakeAction) action.BackupItem { return f },
		"begins an operation": func(f *fakeAction) action.BackupItem { return starter{f} },
	} {
		t.Run(name, func(t *testing.T) {
			clk, asked, lost := &leaping{}, 0, false
			pauses := &fakeAction{name: "a.io/pauses", do: func(context.Context, action.Identity, *action.Object) (action.BackupResult, error) {
				clk.ahead.Add(int64(time.Minute))
				lost = true
				return action.BackupResult{}, nil
			}}
			s := newSetup(t, newEstateServer(), fiftyConfigMaps(), "a").addActions(of(pauses))
			s.cfg.Clock = clk
			s.job.Confirm = func(context.Context) error {
				if asked++; lost {
					return claim.ErrLost
				}
				return nil
			}
			_, err := Run(t.Context(), s.cfg, s.job)
			require.ErrorIs(t, err, claim.ErrLost)
			require.Equal(t, 1, pauses.calledOnceEach(t))
			require.Equal(t, 2, asked)
			require.LessOrEqual(t, len(s.intendedObjects(t)), 1)
		})
	}
}

func TestAClaimIsNotConfirmedForEachObject(t *testing.T) {
	asked := 0
	looks := tracingAction("a.io/looks", action.Selector{})
	s := newSetup(t, newEstateServer(), fiftyConfigMaps(), "a").addActions(looks)
	s.cfg.Clock = &leaping{}
	s.job.Confirm = func(context.Context) error {
		asked++
		return nil
	}
	res, _ := s.runJob(t)
	require.Zero(t, res.Errors)
	require.Equal(t, 50, looks.calledOnceEach(t))
	require.Equal(t, 1, asked)
}
