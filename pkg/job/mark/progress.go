package mark

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
)

// ProgressPeriod is the time between two readings of a watched job.
const ProgressPeriod = 500 * time.Millisecond

// ProgressSource answers how far jobs of one kind T are, once or with every change until they end. Progress
// is sent as P and read from the object, so that any replica can give it. Every field is required. Safe for
// concurrent use.
type ProgressSource[T client.Object, P proto.Message] struct {
	// Reader must not be a cache, or answers may be older than the ones before.
	Reader    client.Reader
	Namespace string
	Clock     clock.WithTicker
	// Kind names the kind in errors, such as "backup".
	Kind string
	New  func() T
	// Describe returns how far the job is.
	Describe func(T) P
	// Terminal reports that the job ended.
	Terminal func(T) bool
}

// Get returns the progress of a job. Its errors wrap errgrpc.ErrNotFound, or those of the API
// server.
func (s *ProgressSource[T, P]) Get(ctx context.Context, name string) (P, error) {
	obj, err := s.Read(ctx, name)
	if err != nil {
		var none P
		return none, err
	}
	return s.Describe(obj), nil
}

// Watch sends the progress of a job, then every change of it, until the job ends. Its errors are
// those of Get and of send, the cause of the end of ctx, and one that wraps errgrpc.ErrConflict
// when another object has the name.
func (s *ProgressSource[T, P]) Watch(ctx context.Context, name string, send func(P) error) error {
	var last P
	begun := false
	return s.Follow(ctx, name, func(obj T) error {
		now := s.Describe(obj)
		if begun && proto.Equal(now, last) {
			return nil
		}
		last, begun = now, true
		return send(now)
	})
}

// Follow calls visit with a job as it is now, and once in every ProgressPeriod, the last time when the job has
// ended. Its errors are those of Watch, and of visit.
func (s *ProgressSource[T, P]) Follow(ctx context.Context, name string, visit func(T) error) error {
	ticker := s.Clock.NewTicker(ProgressPeriod)
	defer ticker.Stop()
	var uid types.UID
	for {
		obj, err := s.Read(ctx, name)
		if err != nil {
			return err
		}
		if uid != "" && obj.GetUID() != uid {
			return fmt.Errorf("%s %q was replaced by another of its name: %w", s.Kind, name, errgrpc.ErrConflict)
		}
		uid = obj.GetUID()
		if err := visit(obj); err != nil {
			return err
		}
		if s.Terminal(obj) {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C():
		}
	}
}

// Read reads a job; its errors are those of Get.
func (s *ProgressSource[T, P]) Read(ctx context.Context, name string) (T, error) {
	obj := s.New()
	err := s.Reader.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: name}, obj)
	if apierrors.IsNotFound(err) {
		return obj, fmt.Errorf("%s %q: %w", s.Kind, name, errgrpc.ErrNotFound)
	}
	if err != nil {
		return obj, fmt.Errorf("read %s %q: %w", s.Kind, name, err)
	}
	return obj, nil
}

// ClaimOwner is the instance that holds the claim of a job that has not ended. A claim that cannot be
// read names none.
func ClaimOwner(obj metav1.Object, terminal bool) string {
	c, ok, err := claim.Parse(obj)
	if terminal || err != nil || !ok {
		return ""
	}
	return c.Owner
}

// ProgressTime is t as messages have it, nil for none.
func ProgressTime(t *metav1.Time) *timestamppb.Timestamp {
	if t == nil {
		return nil
	}
	return timestamppb.New(t.Time)
}
