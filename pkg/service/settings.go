package service

import (
	"cmp"
	"errors"
	"time"

	"github.com/spf13/pflag"

	"github.com/holdfast-io/holdfast/pkg/errgrpc"
)

// NewConfig returns a configuration with the defaults of its flags: BindFlags of each service is the
// only place that states them.
func NewConfig[T any, P interface {
	*T
	BindFlags(fs *pflag.FlagSet)
}]() T {
	var config T
	P(&config).BindFlags(pflag.NewFlagSet("", pflag.ContinueOnError))
	return config
}

// Duration is a setting of a service that is a time, with what it may be.
type Duration struct {
	Flag  string // without dashes
	Value time.Duration
	Least time.Duration // 0 means 1ms
	Off   bool          // the value may be 0, which turns something off
}

// CheckDurations returns an error for each setting that is less than it may be, naming its flag.
func CheckDurations(all ...Duration) error {
	var errs []error
	for _, d := range all {
		least := cmp.Or(d.Least, time.Millisecond)
		if d.Value < least && (d.Value != 0 || !d.Off) {
			errs = append(errs, errgrpc.Field("--"+d.Flag, "must be at least %s, is %s", least, d.Value))
		}
	}
	return errors.Join(errs...)
}

// Count is a setting of a service that is a number, with what it may be.
type Count struct {
	Flag  string // without dashes
	Value int
	Most  int // 0 means no limit; the least is 1
}

// CheckCounts returns an error for each setting that is not what it may be, naming its flag.
func CheckCounts(all ...Count) error {
	var errs []error
	for _, n := range all {
		switch {
		case n.Most == 0 && n.Value < 1:
			errs = append(errs, errgrpc.Field("--"+n.Flag, "must be at least 1, is %d", n.Value))
		case n.Most > 0 && (n.Value < 1 || n.Value > n.Most):
			errs = append(errs, errgrpc.Field("--"+n.Flag, "must be 1 to %d, is %d", n.Most, n.Value))
		}
	}
	return errors.Join(errs...)
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
