package service_test

import (
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/service"
)

const keep = -1 // for debug.SetMemoryLimit, which then only returns the limit

// GOMEMLIMIT takes precedence in every service: one runner did not honour it.
func TestTheEnvironmentLimitsMemoryFirst(t *testing.T) {
	before := debug.SetMemoryLimit(keep)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	t.Setenv("GOMEMLIMIT", "1GiB")
	service.LimitMemory(64 << 20)
	require.Equal(t, before, debug.SetMemoryLimit(keep))
	t.Setenv("GOMEMLIMIT", "")
	service.LimitMemory(64 << 20)
	require.EqualValues(t, 64<<20, debug.SetMemoryLimit(keep))
}

func TestTheMemoryLimitIsRaisedForAWhile(t *testing.T) {
	before := debug.SetMemoryLimit(keep)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	t.Setenv("GOMEMLIMIT", "")
	service.RaiseMemoryLimit(1)()
	require.Equal(t, before, debug.SetMemoryLimit(keep), "there was no limit")
	service.LimitMemory(64 << 20)
	one, two := service.RaiseMemoryLimit(8<<20), service.RaiseMemoryLimit(4<<20)
	require.EqualValues(t, 76<<20, debug.SetMemoryLimit(keep))
	one()
	one()
	require.EqualValues(t, 68<<20, debug.SetMemoryLimit(keep))
	t.Setenv("GOMEMLIMIT", "1GiB")
	service.RaiseMemoryLimit(8 << 20)()
	two()
	require.EqualValues(t, 64<<20, debug.SetMemoryLimit(keep))
}
