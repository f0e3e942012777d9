package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/utils/clock"

	"github.com/holdfast-io/holdfast/pkg/telemetry"
)

// Exit codes of Main.
const (
	// ExitOK: stopped in order, or only asked for help or the version.
	ExitOK = 0
	// ExitFailed: the service could not start or has failed.
	ExitFailed = 1
	// ExitUsage: a flag or variable is wrong.
	ExitUsage = 2
)

// flushLimit is how long the last spans may take to be delivered.
const flushLimit = 5 * time.Second

// Build makes a service. ctx ends at the first SIGINT or SIGTERM, so that a slow start can be
// interrupted.
type Build func(ctx context.Context, base Base) (Runner, error)

// Main is the body of a service's main function; its result is the exit code. bind adds the
// service's own flags, each of which has its HOLDFAST_* variable too. A second SIGINT or SIGTERM
// ends the process at once.
func Main(name string, defaults Ports, bind func(*pflag.FlagSet), build Build) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM) //nolint:forbidigo // this is the root of every service binary
	defer stop()
	context.AfterFunc(ctx, stop)
	p := process{name: name, args: os.Args[1:], environ: os.Environ(), getenv: os.Getenv, stdout: os.Stdout, stderr: os.Stderr}
	return p.main(ctx, defaults, bind, build)
}

// process is what a service binary gets from the operating system.
type process struct {
	name           string
	args           []string
	environ        []string
	getenv         func(string) string
	stdout, stderr io.Writer
}

func (p process) main(ctx context.Context, defaults Ports, bind func(*pflag.FlagSet), build Build) int {
	options := Defaults(p.name, defaults)
	done, err := p.parseOptions(&options, bind)
	if done {
		return ExitOK
	}
	if err != nil {
		p.printError(err)
		return ExitUsage
	}
	if err := p.serveProcess(ctx, options, build); err != nil {
		p.printError(err)
		return ExitFailed
	}
	return ExitOK
}

func (p process) printError(err error) { _, _ = fmt.Fprintf(p.stderr, "%s: %v\n", p.name, err) }

// parseOptions reads flags and variables; done means that help or the version was asked for and printed.
func (p process) parseOptions(options *Options, bind func(*pflag.FlagSet)) (done bool, err error) {
	fs := pflag.NewFlagSet(p.name, pflag.ContinueOnError)
	fs.SetOutput(io.Discard)
	version := fs.Bool("version", false, "print version and commit")
	options.BindFlags(fs)
	bind(fs)
	switch err := fs.Parse(p.args); {
	case errors.Is(err, pflag.ErrHelp):
		_, _ = fmt.Fprintf(p.stdout, "Usage: %s [flags]\n\nEvery flag is also a variable: --log-level is HOLDFAST_LOG_LEVEL.\n\n%s", p.name, fs.FlagUsages())
		return true, nil
	case err != nil:
		return false, err
	case *version:
		_, _ = fmt.Fprintln(p.stdout, p.name, telemetry.BuildInfo())
		return true, nil
	case fs.NArg() > 0:
		return false, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	return false, errors.Join(ApplyEnv(fs, p.environ), options.Validate())
}

// serveProcess builds and runs the service.
func (p process) serveProcess(ctx context.Context, options Options, build Build) (err error) {
	log, err := telemetry.NewLogger(p.stderr, options.LogLevel, options.LogFormat)
	if err != nil {
		return err
	}
	instance := NewInstance(p.name)
	log = log.With("service", p.name, "instance", instance)
	telemetry.AdoptProcess(log)
	tracing, err := telemetry.NewTracing(ctx, p.name, instance, telemetry.Environment{Getenv: p.getenv, Console: p.stdout})
	if err != nil {
		return err
	}
	defer func() {
		flushCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushLimit)
		defer cancel()
		if err := tracing.Shutdown(flushCtx); err != nil {
			log.Warn("Failed to deliver the last spans; they are lost", "error", err)
		}
	}()
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v\n%s", v, debug.Stack())
		}
	}()
	log.Info("Starting service", "version", telemetry.Version(), "commit", telemetry.Commit())
	runner, err := build(ctx, Base{
		Name: p.name, Instance: instance, Options: options, Log: log, Clock: clock.RealClock{}, Tracer: tracing.Provider, Propagator: tracing.Propagator,
	})
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		return nil // stopped while starting
	}
	if err != nil {
		return err
	}
	if err := runner.Run(ctx); err != nil {
		return err
	}
	log.Info("Stopped service")
	return nil
}
