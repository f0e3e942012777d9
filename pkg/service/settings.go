package service

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/holdfast-io/holdfast/pkg/errgrpc"
)

// Duration is a setting of a service that is a time, with what it may be.
type Duration struct {
	Flag    string // without dashes
	Value   *time.Duration
	Default time.Duration // what 0 means
	Least   time.Duration // 0 means that it must not be negative
}

// CompleteDurations gives settings that are zero their defaults. It fails with the first that is
// less than it may be, naming its flag.
func CompleteDurations(all ...Duration) error {
	for _, d := range all {
		switch {
		case *d.Value == 0:
			*d.Value = d.Default
		case *d.Value < d.Least && d.Least > 0:
			return errgrpc.Field("--"+d.Flag, "must be at least %s, is %s", d.Least, *d.Value)
		case *d.Value < 0:
			return errgrpc.Field("--"+d.Flag, "must not be negative, is %s", *d.Value)
		}
	}
	return nil
}

// Count is a setting of a service that is a number, with what it may be.
type Count struct {
	Flag    string // without dashes
	Value   *int
	Default int // what 0 means
	Most    int // 0 means no limit; the least is 1
}

// CompleteCounts gives settings that are zero their defaults. It fails with the first that is not
// what it may be, naming its flag.
func CompleteCounts(all ...Count) error {
	for _, n := range all {
		switch {
		case *n.Value == 0:
			*n.Value = n.Default
		case *n.Value < 0 && n.Most == 0:
			return errgrpc.Field("--"+n.Flag, "must be at least 1, is %d", *n.Value)
		case *n.Value < 0 || n.Most > 0 && *n.Value > n.Most:
			return errgrpc.Field("--"+n.Flag, "must be 1 to %d, is %d", n.Most, *n.Value)
		}
	}
	return nil
}

// ConcurrencyFlag is the flag of how many jobs one process works on at once, in every service that
// has jobs.
const ConcurrencyFlag = "concurrent-jobs"

// BindConcurrency adds ConcurrencyFlag, and the alias that sets it in this service alone where
// several run in one process. what is the jobs, such as "backups".
func BindConcurrency(fs *pflag.FlagSet, value *int, standard int, alias, what string) {
	fs.IntVar(value, ConcurrencyFlag, standard, what+" this process works on at once")
	fs.IntVar(value, alias, standard, "alias of --"+ConcurrencyFlag+" for "+what)
}
