package grpcserver

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/grpc/metadata"

	"github.com/holdfast-io/holdfast/pkg/errgrpc"
)

// BearerToken is the token of a call's metadata "authorization: Bearer <token>", which has no space
// (RFC 6750, section 2.1). Without exactly one the error wraps errgrpc.ErrUnauthenticated.
func BearerToken(ctx context.Context) (string, error) {
	values := metadata.ValueFromIncomingContext(ctx, "authorization")
	if len(values) != 1 {
		return "", fmt.Errorf("metadata needs one authorization: %w", errgrpc.ErrUnauthenticated)
	}
	scheme, token, ok := strings.Cut(values[0], " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") || token == "" || strings.Contains(token, " ") {
		return "", fmt.Errorf("authorization is not a bearer token: %w", errgrpc.ErrUnauthenticated)
	}
	return token, nil
}
