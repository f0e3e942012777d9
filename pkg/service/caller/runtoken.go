package caller

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"fmt"
	"os"
	"path/filepath"

	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/service/grpcserver"
	"github.com/holdfast-io/holdfast/pkg/service/private"
)

// FileName is the token's file in the data directory.
const FileName = "token"

// TokenPath is the token's file in the data directory dir.
func TokenPath(dir string) string { return filepath.Join(dir, FileName) }

// CreateToken makes a token and puts it into dir, in place of an earlier one.
func CreateToken(dir string) (string, error) {
	token := rand.Text() + rand.Text() // 260 bits of letters and digits
	if err := private.WriteFile(TokenPath(dir), []byte(token+"\n")); err != nil {
		return "", fmt.Errorf("token: %w", err)
	}
	return token, nil
}

// RemoveToken removes the token's file; an absent one is no error.
func RemoveToken(dir string) error {
	if err := os.Remove(TokenPath(dir)); err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("token: %w", err)
	}
	return nil
}

// ReadToken reads a token from its file. One that others may read or own wraps private.ErrNotOurs, an
// absent one fs.ErrNotExist.
func ReadToken(path string) (string, error) {
	data, err := private.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("token: %w", err)
	}
	token := bytes.TrimSpace(data)
	if len(token) == 0 {
		return "", fmt.Errorf("token: %s is empty", path)
	}
	return string(token), nil
}

// AuthorizeToken lets in callers that present token. It takes the same time for every wrong token of the
// same length.
func AuthorizeToken(token string) grpcserver.Authorizer {
	want := []byte(token)
	return func(ctx context.Context, _ string) (string, error) {
		got, err := grpcserver.BearerToken(ctx)
		if err != nil {
			return "", fmt.Errorf("%w; the token is in the file %s of the data directory of `holdfast up`", err, FileName)
		}
		if subtle.ConstantTimeCompare([]byte(got), want) != 1 {
			return "", fmt.Errorf("not the token of this run of `holdfast up`: %w", errgrpc.ErrUnauthenticated)
		}
		return "", nil
	}
}
