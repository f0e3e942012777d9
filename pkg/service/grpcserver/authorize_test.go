package grpcserver_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/service/grpcserver"
	backupv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/backup/v1"
)

// gatekeeper is an Authorizer whose answer changes.
type gatekeeper struct {
	mu     sync.Mutex
	answer error
	panics bool
	asked  chan struct{}
}

func (g *gatekeeper) authorizeCall(context.Context, string) (string, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asked <- struct{}{}
	if g.panics {
		panic("review")
	}
	return "ann", g.answer
}

func (g *gatekeeper) setAnswer(answer error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.answer = answer
}

// TestALongStreamIsAuthorizedAgain: a caller whose right was revoked went on following a stream.
func TestALongStreamIsAuthorizedAgain(t *testing.T) {
	for name, c := range map[string]struct {
		answer  error
		reviews int // until the stream ends
		code    codes.Code
	}{
		"revoked":           {errgrpc.ErrForbidden, 1, codes.PermissionDenied},
		"token has expired": {errgrpc.ErrUnauthenticated, 1, codes.Unauthenticated},
		"no answer":         {errgrpc.ErrUnavailable, 3, codes.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			clk, gate := clocktesting.NewFakeClock(time.Unix(0, 0)), &gatekeeper{asked: make(chan struct{}, 10)}
			b := startBed(t, func(cfg *grpcserver.Config) { cfg.Clock, cfg.Authorize = clk, gate.authorizeCall })
			stream, err := b.client.WatchProgress(t.Context(), &backupv1.WatchProgressRequest{Name: "waits"})
			require.NoError(t, err)
			<-b.impl.started
			<-gate.asked
			review := func() {
				require.Eventually(t, clk.HasWaiters, time.Minute, time.Millisecond)
				clk.Step(grpcserver.StreamReviewInterval)
				<-gate.asked
			}
			review()
			review()
			require.NoError(t, stream.Context().Err(), "who still may goes on")
			gate.setAnswer(c.answer)
			for range c.reviews {
				review()
			}
			_, err = stream.Recv()
			require.Equal(t, c.code, status.Code(err))
			require.ErrorContains(t, err, "may not go on")
		})
	}
}

// TestAPanicOfAReviewIsNoAnswer: on the goroutine that reviews a stream it ended the process.
func TestAPanicOfAReviewIsNoAnswer(t *testing.T) {
	clk, gate := clocktesting.NewFakeClock(time.Unix(0, 0)), &gatekeeper{asked: make(chan struct{}, 10)}
	b := startBed(t, func(cfg *grpcserver.Config) { cfg.Clock, cfg.Authorize = clk, gate.authorizeCall })
	stream, err := b.client.WatchProgress(t.Context(), &backupv1.WatchProgressRequest{Name: "waits"})
	require.NoError(t, err)
	<-b.impl.started
	<-gate.asked
	gate.mu.Lock()
	gate.panics = true
	gate.mu.Unlock()
	for range 3 {
		require.Eventually(t, clk.HasWaiters, time.Minute, time.Millisecond)
		clk.Step(grpcserver.StreamReviewInterval)
		<-gate.asked
	}
	_, err = stream.Recv()
	require.Equal(t, codes.Unavailable, status.Code(err))
	require.Equal(t, codes.Unavailable, status.Code(b.callProgress(t, "fine")))
	require.Contains(t, b.log.String(), "Review of the caller panicked")
}

// TestAReviewHasADeadline: a call without one waited for the API server for as long as it took.
func TestAReviewHasADeadline(t *testing.T) {
	b := startBed(t, func(cfg *grpcserver.Config) {
		cfg.Authorize = func(ctx context.Context, _ string) (string, error) {
			end, set := ctx.Deadline()
			if !set || time.Until(end) > grpcserver.ReviewLimit {
				return "", errors.New("no deadline")
			}
			return "", nil
		}
	})
	require.NoError(t, b.callProgress(t, "fine"))
	stream, err := b.client.WatchProgress(t.Context(), &backupv1.WatchProgressRequest{Name: "fine"})
	require.NoError(t, err)
	_, err = stream.Recv()
	require.NoError(t, err)
}

// TestCallersThatAreNotKnownDoNotFloodTheAuditLog: a caller with made-up tokens had a line for each
// call once the limit of reviews was reached.
func TestCallersThatAreNotKnownDoNotFloodTheAuditLog(t *testing.T) {
	b := startBed(t, func(cfg *grpcserver.Config) {
		cfg.Authorize = func(context.Context, string) (string, error) { return "", errgrpc.ErrUnavailable }
		cfg.Audited = func(string) bool { return true }
	})
	require.Equal(t, codes.Unavailable, status.Code(b.callProgress(t, "fine")))
	stream, err := b.client.WatchProgress(t.Context(), &backupv1.WatchProgressRequest{Name: "fine"})
	require.NoError(t, err)
	_, err = stream.Recv()
	require.Equal(t, codes.Unavailable, status.Code(err))
	require.NotContains(t, b.log.String(), "Call audited")

	open := startBed(t, func(cfg *grpcserver.Config) { cfg.Audited = func(string) bool { return true } })
	require.NoError(t, open.callProgress(t, "fine"))
	require.Contains(t, open.log.String(), "Call audited", "without an Authorizer every caller is allowed")
}

func TestCallsThatChangeOrRevealAreLogged(t *testing.T) {
	gate := &gatekeeper{asked: make(chan struct{}, 10)}
	b := startBed(t, func(cfg *grpcserver.Config) {
		cfg.Authorize = gate.authorizeCall
		cfg.Audited = func(method string) bool { return strings.HasSuffix(method, "/GetProgress") }
	})
	require.NoError(t, b.callProgress(t, "fine"))
	require.Contains(t, b.log.String(), "msg=\"Call audited\" method=/holdfast.backup.v1.BackupService/GetProgress user=ann peer=bufconn code=OK request.name=fine\n")
	require.Error(t, b.callProgress(t, "missing"))
	require.Contains(t, b.log.String(), "code=NotFound request.name=missing\n")
	gate.setAnswer(errgrpc.ErrForbidden)
	require.Error(t, b.callProgress(t, "fine"))
	require.Contains(t, b.log.String(), "user=ann peer=bufconn code=PermissionDenied\n", "it is known who tried")
	lines := strings.Count(b.log.String(), "Call audited")

	gate.setAnswer(errgrpc.ErrUnauthenticated)
	require.Error(t, b.callProgress(t, "fine"))
	gate.setAnswer(nil)
	stream, err := b.client.WatchProgress(t.Context(), &backupv1.WatchProgressRequest{Name: "fine"})
	require.NoError(t, err)
	_, err = stream.Recv()
	require.NoError(t, err)
	require.Equal(t, lines, strings.Count(b.log.String(), "Call audited"), "neither callers that are not known nor other methods")
}
