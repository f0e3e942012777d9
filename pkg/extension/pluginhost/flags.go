package pluginhost

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/holdfast-io/holdfast/pkg/errgrpc"
)

// Flags are the settings of plugins that a service adds to the shared ones, of which --plugin-dir
// is the directory of plugins.
type Flags struct {
	// CallTimeout bounds one call about one object.
	CallTimeout time.Duration
	// QueryTimeout bounds a call that changes nothing.
	QueryTimeout time.Duration
	// StorageTimeout bounds one call of an object store or a volume snapshotter.
	StorageTimeout time.Duration
	// StartTimeout bounds the start of a process.
	StartTimeout time.Duration
	// AnswerBytes is the largest answer to a call.
	AnswerBytes int
	// Env are names of further variables that plugins get, see Config.AllowEnv.
	Env []string
}

// BindFlags adds the flags to fs with the defaults of Limits.
func (f *Flags) BindFlags(fs *pflag.FlagSet) {
	l := Limits{}.withDefaults()
	fs.DurationVar(&f.CallTimeout, "plugin-call-timeout", l.Execute, "how long a plugin may take for one object")
	fs.DurationVar(&f.QueryTimeout, "plugin-query-timeout", l.Query, "how long a plugin may take for a question, such as what it applies to")
	fs.DurationVar(&f.StorageTimeout, "plugin-storage-timeout", l.Storage, "how long an object store or volume snapshotter plugin may take for one call")
	fs.DurationVar(&f.StartTimeout, "plugin-start-timeout", l.Start, "how long a plugin's process may take to start")
	fs.IntVar(&f.AnswerBytes, "plugin-answer-bytes", l.Answer, "largest answer of a plugin")
	fs.StringSliceVar(&f.Env, "plugin-env", nil, "further environment variables that plugins get, separated by commas; NAME_* is every name that begins so")
}

// Validate checks the settings; errors name the flag.
func (f *Flags) Validate() error {
	for _, d := range []struct {
		flag  string
		value time.Duration
	}{
		{"--plugin-call-timeout", f.CallTimeout}, {"--plugin-query-timeout", f.QueryTimeout},
		{"--plugin-storage-timeout", f.StorageTimeout}, {"--plugin-start-timeout", f.StartTimeout},
	} {
		if d.value < time.Second {
			return errgrpc.Field(d.flag, "must be at least 1s, is %s", d.value)
		}
	}
	if f.AnswerBytes < 64<<10 || f.AnswerBytes > 256<<20 {
		return errgrpc.Field("--plugin-answer-bytes", "must be 64 KiB to 256 MiB, is %d", f.AnswerBytes)
	}
	for _, name := range f.Env {
		if err := checkEnvName(name); err != nil {
			return errgrpc.Field("--plugin-env", "%v", err)
		}
	}
	return nil
}

// Limits returns the limits that the flags state.
func (f *Flags) Limits() Limits {
	return Limits{Start: f.StartTimeout, Query: f.QueryTimeout, Execute: f.CallTimeout, Storage: f.StorageTimeout, Answer: f.AnswerBytes}
}
