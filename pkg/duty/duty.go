// Package duty runs a periodic task in one replica at a time.
//
// The Lease behind it only saves work: a paused replica may believe for a moment
// that the duty is still its own, so a duty's effects must be idempotent.
package duty

import (
	"context"
	"log/slog"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Config describes a duty.
type Config struct {
	Reader    client.Reader // uncached
	Client    client.Client
	Namespace string
	Name      string        // the Lease is named holdfast-duty-<Name>
	Instance  string        // unique per process start
	Timeout   time.Duration // a silent holder is replaced after this; 0 means 15 s
	Log       *slog.Logger
}

// Run competes for the duty until ctx ends (nil) or fn returns (its error).
// fn's context ends when the duty is lost; Run waits for fn before it competes
// again. The Lease is released at the end, so another replica follows at once.
func Run(ctx context.Context, cfg Config, fn func(ctx context.Context) error) error { panic("skeleton") }
