package rotate

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestEveryCaseHasItsDay(t *testing.T) {
	now := time.Date(2030, 12, 31, 23, 59, 0, 0, time.UTC)
	for n := range 30 {
		days := 0
		for day := range 7 {
			if belongs(n, 7, now.AddDate(0, 0, day)) {
				days++
			}
		}
		require.Equal(t, 1, days, "case %d", n)
	}
}

func TestAllWhenAsked(t *testing.T) {
	t.Setenv(All, "1")
	for n := range 10 {
		require.True(t, Today(n, 5))
	}
}
