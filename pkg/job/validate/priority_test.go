package validate_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/job/validate"
)

func TestOf(t *testing.T) {
	class, err := validate.PriorityOf(nil)
	require.NoError(t, err)
	require.Equal(t, validate.PriorityNormal, class)
	for _, want := range []validate.Priority{validate.PriorityLow, validate.PriorityNormal, validate.PriorityHigh} {
		class, err = validate.PriorityOf(map[string]string{"holdfast.io/priority": want.String()})
		require.NoError(t, err)
		require.Equal(t, want, class)
	}
	for _, bad := range []string{"", "High", "7", "high "} {
		_, err = validate.PriorityOf(map[string]string{"holdfast.io/priority": bad})
		require.ErrorContains(t, err, "none of high, normal and low")
	}
}

func TestWaitingRaisesTheClass(t *testing.T) {
	const ageing = 30 * time.Minute
	for _, c := range []struct {
		class          validate.Priority
		waited, ageing time.Duration
		want           validate.Priority
	}{
		{validate.PriorityLow, 0, ageing, validate.PriorityLow},
		{validate.PriorityLow, ageing - 1, ageing, validate.PriorityLow},
		{validate.PriorityLow, ageing, ageing, validate.PriorityNormal},
		{validate.PriorityLow, 2 * ageing, ageing, validate.PriorityHigh},
		{validate.PriorityLow, 100 * ageing, ageing, validate.PriorityHigh},
		{validate.PriorityNormal, ageing, ageing, validate.PriorityHigh},
		{validate.PriorityHigh, ageing, ageing, validate.PriorityHigh},
		{validate.PriorityLow, math.MaxInt64, 0, validate.PriorityLow},
		{validate.PriorityLow, math.MaxInt64, 1, validate.PriorityHigh},
		{validate.PriorityLow, -time.Hour, ageing, validate.PriorityLow}, // a clock that was set back
	} {
		require.Equal(t, c.want, c.class.AgedClass(c.waited, c.ageing), "%+v", c)
	}
}
