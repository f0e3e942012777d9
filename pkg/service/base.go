package service

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net"
	"strings"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

// Base is what a service is built on. [Main] fills it for a binary, `holdfast up` for services that
// share a process.
type Base struct {
	// Name is the service's name, for example "queue-scheduler".
	Name string
	// Instance is unique per process start and service, and a valid Kubernetes object name. See
	// [NewInstance].
	Instance string
	// Options are the shared settings, already validated.
	Options Options
	// Log is where the service logs. It must not be nil.
	Log *slog.Logger
	// Clock is the only source of time.
	Clock clock.WithTicker
	// Tracer makes the service's spans; its spans name the service.
	Tracer trace.TracerProvider
	// Propagator passes trace context on over gRPC; nil means telemetry.Propagator.
	Propagator propagation.TextMapPropagator
	// Token, when set, is what every caller of a gRPC method must present as its bearer token, in
	// place of Options.Auth. Health and reflection answer without it. It is secret.
	Token string
	// DrainLimit is how long the parts of [Runtime.GoLast] may take to stop beyond [HandOverLimit].
	DrainLimit time.Duration
	// CacheTransform shrinks objects before the manager caches them; nil drops their managedFields.
	CacheTransform cache.TransformFunc
	// GRPCListener and HTTPListener, when set, are listened on instead of opening the addresses of
	// Options, which then only describe them: no process can take a free port between its choice
	// and its use. [New] owns them from its call on.
	GRPCListener, HTTPListener net.Listener
}

// Runner is a service that was built and not yet started.
type Runner interface {
	// Run serves until ctx ends and returns nil after an orderly shutdown. It is called once.
	Run(ctx context.Context) error
}

// NewInstance returns a name for one start of a service: the service's name and 60 random bits.
func NewInstance(service string) string {
	return service + "-" + strings.ToLower(rand.Text()[:12])
}

// serviceOf is the service that an instance with a name of [NewInstance] is of.
func serviceOf(instance string) string {
	end := strings.LastIndexByte(instance, '-')
	return instance[:max(end, 0)]
}

func (b Base) checkBase() error {
	switch {
	case b.Name == "":
		return errors.New("base has no name")
	case b.Instance == "":
		return errors.New("base has no instance")
	case b.Log == nil:
		return errors.New("base has no log")
	case b.Clock == nil:
		return errors.New("base has no clock")
	case b.Tracer == nil:
		return errors.New("base has no tracer")
	}
	return b.Options.Validate()
}
