// Package rotate spreads the cases of long tests over days, so that every case is run soon and no run is long. Only tests import it.
package rotate

import (
	"os"
	"time"
)

// All is the environment variable that, when it is not empty, asks for every case.
const All = "LONG_TESTS"

// Today tells whether case number n belongs to today's share, one of shares; days are those of UTC. With LONG_TESTS set every case does. A failure is
// reproduced on any day by setting it.
func Today(n, shares int) bool {
	return os.Getenv(All) != "" || belongs(n, shares, time.Now()) //nolint:forbidigo // which tests run depends on the real day
}

func belongs(n, shares int, now time.Time) bool {
	day := int(now.Unix() / (24 * 60 * 60))
	return n%shares == day%shares
}
