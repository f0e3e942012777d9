package service

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

type run func(context.Context) error

func (r run) Run(ctx context.Context) error { return r(ctx) }

type outcome struct {
	code           int
	stdout, stderr string
	base           Base
	knob           string
}

func startMain(t *testing.T, ctx context.Context, args, environ []string, build func(context.Context, Base) (Runner, error)) outcome {
	t.Helper()
	return startWith(t, ctx, func(string) string { return "" }, args, environ, build)
}

func startWith(
	t *testing.T, ctx context.Context, getenv func(string) string, args, environ []string, build func(context.Context, Base) (Runner, error),
) outcome {
	t.Helper()
	var out, errs bytes.Buffer
	var o outcome
	p := process{
		name: "queue-scheduler", args: args, environ: environ,
		getenv: getenv, stdout: &out, stderr: &errs,
	}
	o.code = p.main(ctx, Ports{GRPC: 7441, HTTP: 8441},
		func(fs *pflag.FlagSet) { fs.StringVar(&o.knob, "knob", "as-it-is", "a knob") },
		func(ctx context.Context, base Base) (Runner, error) { o.base = base; return build(ctx, base) })
	o.stdout, o.stderr = out.String(), errs.String()
	return o
}

func runnerEndingWith(err error) func(context.Context, Base) (Runner, error) {
	return func(context.Context, Base) (Runner, error) {
		return run(func(context.Context) error { return err }), nil
	}
}

func TestMainRuns(t *testing.T) {
	o := startMain(t, t.Context(), []string{"--knob=turned", "--namespace=backups"}, []string{"HOLDFAST_LOG_FORMAT=json"}, runnerEndingWith(nil))
	require.Equal(t, ExitOK, o.code, o.stderr)
	require.Equal(t, "turned", o.knob)
	require.Equal(t, "backups", o.base.Options.Namespace)
	require.Regexp(t, `^queue-scheduler-[a-z2-7]{12}$`, o.base.Instance)
	require.NotNil(t, o.base.Tracer)
	require.Contains(t, o.stderr, `"instance":"`+o.base.Instance)
}

func TestMainUsage(t *testing.T) {
	for name, tc := range map[string]struct {
		args, environ []string
		want          string
	}{
		"flag":             {[]string{"--nope"}, nil, "--nope"},
		"variable":         {nil, []string{"HOLDFAST_NOPE=1"}, "HOLDFAST_NOPE"},
		"variable of knob": {nil, []string{"HOLDFAST_KNOB=1", "HOLDFAST_VERSION=true"}, "HOLDFAST_VERSION"},
		"argument":         {[]string{"start"}, nil, `"start"`},
		"invalid":          {[]string{"--log-level=loud"}, nil, "--log-level"},
	} {
		t.Run(name, func(t *testing.T) {
			o := startMain(t, t.Context(), tc.args, tc.environ, func(context.Context, Base) (Runner, error) {
				t.Error("built in spite of wrong settings")
				return nil, errors.New("not reached")
			})
			require.Equal(t, ExitUsage, o.code)
			require.Contains(t, o.stderr, tc.want)
		})
	}
}

func TestMainVersionAndHelp(t *testing.T) {
	o := startMain(t, t.Context(), []string{"--version"}, nil, runnerEndingWith(nil))
	require.Equal(t, ExitOK, o.code)
	require.Regexp(t, `^queue-scheduler \S+ \(commit \S+, go`, o.stdout)
	o = startMain(t, t.Context(), []string{"--help"}, nil, runnerEndingWith(nil))
	require.Equal(t, ExitOK, o.code)
	require.Contains(t, o.stdout, "--knob")
	require.Contains(t, o.stdout, "--tls-ca-file")
}

// Logs are on standard error, so spans may have standard output.
func TestMainPrintsSpans(t *testing.T) {
	traced := func(ctx context.Context, base Base) (Runner, error) {
		_, span := base.Tracer.Tracer("test").Start(ctx, "built")
		span.End()
		return runnerEndingWith(nil)(ctx, base)
	}
	exporter := func(value string) func(string) string {
		return func(name string) string { return map[string]string{"OTEL_TRACES_EXPORTER": value}[name] }
	}
	o := startWith(t, t.Context(), exporter("console"), nil, nil, traced)
	require.Equal(t, ExitOK, o.code, o.stderr)
	var span struct{ Name string }
	require.NoError(t, json.Unmarshal([]byte(o.stdout), &span), o.stdout)
	require.Equal(t, "built", span.Name)

	o = startWith(t, t.Context(), exporter("zipkin"), nil, nil, traced)
	require.Equal(t, ExitFailed, o.code)
	require.Contains(t, o.stderr, "OTEL_TRACES_EXPORTER=zipkin")
}

func TestMainFailures(t *testing.T) {
	for name, build := range map[string]func(context.Context, Base) (Runner, error){
		"build":        func(context.Context, Base) (Runner, error) { return nil, errors.New("on purpose") },
		"build panics": func(context.Context, Base) (Runner, error) { panic("on purpose") },
		"run":          runnerEndingWith(errors.New("on purpose")),
	} {
		t.Run(name, func(t *testing.T) {
			o := startMain(t, t.Context(), nil, nil, build)
			require.Equal(t, ExitFailed, o.code)
			require.Contains(t, o.stderr, "on purpose")
		})
	}
}

func TestMainSlowStartIsInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	o := startMain(t, ctx, nil, nil, func(ctx context.Context, _ Base) (Runner, error) {
		cancel()
		<-ctx.Done()
		return nil, ctx.Err()
	})
	require.Equal(t, ExitOK, o.code, o.stderr)
}
