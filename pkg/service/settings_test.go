package service_test

import (
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/service"
)

// A claim timeout of minus five seconds became 30 s in one service and an error in the next.
func TestADurationThatCannotBeIsAnError(t *testing.T) {
	for name, tt := range map[string]struct {
		value, least time.Duration
		off          bool
		problem      string
	}{
		"the least":             {value: time.Second, least: time.Second},
		"zero turns off":        {off: true},
		"zero":                  {problem: "must be at least 1ms, is 0s"},
		"zero with a least":     {least: time.Second, problem: "must be at least 1s, is 0s"},
		"negative":              {value: -5 * time.Second, off: true, problem: "must be at least 1ms, is -5s"},
		"negative with a least": {value: -5 * time.Second, least: time.Second, problem: "must be at least 1s, is -5s"},
		"too short":             {value: time.Millisecond, least: time.Second, problem: "must be at least 1s, is 1ms"},
	} {
		t.Run(name, func(t *testing.T) {
			err := service.CheckDurations(service.Duration{Flag: "claim-timeout", Value: tt.value, Least: tt.least, Off: tt.off})
			if tt.problem == "" {
				require.NoError(t, err)
				return
			}
			requireField(t, err, "--claim-timeout", tt.problem)
		})
	}
}

func TestACountThatCannotBeIsAnError(t *testing.T) {
	for name, tt := range map[string]struct {
		value, most int
		problem     string
	}{
		"the most":        {value: 64, most: 64},
		"zero":            {problem: "must be at least 1, is 0"},
		"zero of some":    {most: 64, problem: "must be 1 to 64, is 0"},
		"negative":        {value: -1, problem: "must be at least 1, is -1"},
		"too many":        {value: 65, most: 64, problem: "must be 1 to 64, is 65"},
		"without a limit": {value: 1 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			err := service.CheckCounts(service.Count{Flag: "jobs", Value: tt.value, Most: tt.most})
			if tt.problem == "" {
				require.NoError(t, err)
				return
			}
			requireField(t, err, "--jobs", tt.problem)
		})
	}
}

func requireField(t *testing.T, err error, flag, problem string) {
	t.Helper()
	field := new(errgrpc.FieldError)
	require.ErrorAs(t, err, &field)
	require.Equal(t, flag, field.Field)
	require.ErrorContains(t, err, problem)
}

func TestBothNamesOfTheConcurrencySetIt(t *testing.T) {
	for _, flag := range []string{"--concurrent-jobs=7", "--jobs=7"} {
		value := 0
		fs := pflag.NewFlagSet("t", pflag.ContinueOnError)
		service.BindConcurrency(fs, &value, 10, "jobs", "backups")
		require.Equal(t, 10, value)
		require.NoError(t, fs.Parse([]string{flag}))
		require.Equal(t, 7, value)
	}
}
