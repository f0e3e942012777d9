package priority_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/services/queue-scheduler/internal/priority"
)

func TestOf(t *testing.T) {
	class, err := priority.ClassOf(nil)
	require.NoError(t, err)
	require.Equal(t, priority.Normal, class)
	for _, want := range []priority.Class{priority.Low, priority.Normal, priority.High} {
		class, err = priority.ClassOf(map[string]string{"holdfast.io/priority": want.String()})
		require.NoError(t, err)
		require.Equal(t, want, class)
	}
	for _, bad := range []string{"", "High", "7", "high "} {
		_, err = priority.ClassOf(map[string]string{"holdfast.io/priority": bad})
		require.ErrorContains(t, err, "none of high, normal and low")
	}
}

func TestWaitingRaisesTheClass(t *testing.T) {
	const ageing = 30 * time.Minute
	for _, c := range []struct {
		class          priority.Class
		waited, ageing time.Duration
		want           priority.Class
	}{
		{priority.Low, 0, ageing, priority.Low},
		{priority.Low, ageing - 1, ageing, priority.Low},
		{priority.Low, ageing, ageing, priority.Normal},
		{priority.Low, 2 * ageing, ageing, priority.High},
		{priority.Low, 100 * ageing, ageing, priority.High},
		{priority.Normal, ageing, ageing, priority.High},
		{priority.High, ageing, ageing, priority.High},
		{priority.Low, math.MaxInt64, 0, priority.Low},
		{priority.Low, math.MaxInt64, 1, priority.High},
		{priority.Low, -time.Hour, ageing, priority.Low}, // a clock that was set back
	} {
		require.Equal(t, c.want, c.class.AgedClass(c.waited, c.ageing), "%+v", c)
	}
}
