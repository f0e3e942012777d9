// Package leaderelection runs a periodic task in one replica at a time.
//
// The Lease behind it only saves work: a paused replica may believe for a moment that the duty is
// still its own, so a duty's effects must be idempotent.
package leaderelection

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// DefaultTimeout is the Timeout of a Config that names none.
const DefaultTimeout = time.Minute

// Parts of the timeout. The elector reads or renews eight times within it, so a standby detects a
// release or an expiry soon. A renewal is sent only if the last write is a third of the timeout old,
// and the term ends when renewals have failed for half of it: within the timeout after the last
// write, where the API server refuses them. Where it hangs, client-go spends up to another half of
// the timeout on a release before it ends the term, while another replica leads already: what is
// done in a term must be harmless when it is done twice.
const (
	looksPerTimeout  = 8
	writesPerTimeout = 3
)

// Config describes a duty.
type Config struct {
	Reader    client.Reader // uncached
	Client    client.Client
	Namespace string
	Name      string        // the Lease is named holdfast-duty-<Name>
	Instance  string        // unique per process start
	Address   string        // where the instance answers gRPC, for FindHolder; may be empty
	Timeout   time.Duration // a silent holder that ran with this is replaced after it, at least 1 s; 0 means 1 min
	Log       *slog.Logger
}

// Run competes for the duty until ctx ends (nil) or fn returns on its own (its error). fn's context
// ends when the duty is lost; Run waits for fn before it competes again. The Lease is released once
// fn returned, so another replica follows at once. Leader election itself is client-go's and keeps
// its own time.
func Run(ctx context.Context, cfg Config, fn func(ctx context.Context) error) error {
	if cfg.Timeout <= 0 {
		cfg.Timeout = DefaultTimeout
	}
	cfg.Timeout = max(cfg.Timeout, time.Second)
	ctx = klog.NewContext(ctx, logr.FromSlogHandler(cfg.Log.Handler()).V(1))
	for ctx.Err() == nil {
		if ended, err := runTerm(ctx, cfg, fn); ended || err != nil {
			return err
		}
	}
	return nil
}

type termResult struct {
	ended bool // fn returned although its context had not ended
	err   error
}

// runTerm acquires the Lease, runs fn while it holds the Lease, and releases it. The wait for the Lease ends
// with ctx; a Lease that is held is released only after fn has returned.
func runTerm(ctx context.Context, cfg Config, fn func(ctx context.Context) error) (ended bool, err error) {
	electing, resign := context.WithCancel(context.WithoutCancel(ctx))
	defer resign()
	lock := &leaseLock{cfg: cfg}
	done := make(chan termResult, 1)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, Name: cfg.Name, ReleaseOnCancel: true,
		LeaseDuration: cfg.Timeout, RenewDeadline: cfg.Timeout / 2, RetryPeriod: cfg.Timeout / looksPerTimeout,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(leading context.Context) {
				defer resign()
				done <- serveLeading(ctx, leading, fn)
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return true, fmt.Errorf("duty %s: %w", cfg.Name, err)
	}
	defer context.AfterFunc(ctx, func() {
		if !lock.acquired.Load() {
			resign()
		}
	})()
	elector.Run(electing)
	if !lock.acquired.Load() {
		return false, nil
	}
	r := <-done
	if !r.ended && r.err != nil && !errors.Is(r.err, context.Canceled) {
		cfg.Log.Warn("Duty stopped with an error", "duty", cfg.Name, "error", r.err)
	}
	return r.ended, errIf(r.ended, r.err)
}

func errIf(ended bool, err error) error {
	if ended {
		return err
	}
	return nil
}

// serveLeading runs fn until it returns; its context ends when the Lease is lost or the caller's context
// ends. A panic is an error.
func serveLeading(ctx, leading context.Context, fn func(ctx context.Context) error) (r termResult) {
	office, stop := context.WithCancel(leading)
	defer stop()
	defer context.AfterFunc(ctx, stop)()
	defer func() {
		if p := recover(); p != nil {
			r = termResult{ended: true, err: fmt.Errorf("panic: %v\n%s", p, debug.Stack())}
		}
	}()
	err := fn(office)
	return termResult{ended: office.Err() == nil, err: err}
}
