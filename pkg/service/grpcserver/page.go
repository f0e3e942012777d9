package grpcserver

import (
	"strconv"

	"github.com/holdfast-io/holdfast/pkg/errgrpc"
)

// PageOffset reads the page token of a List method whose tokens are offsets: how many entries the
// pages before held, 0 for the first page. A token of another form is an error of field page_token.
func PageOffset(token string) (int, error) {
	if token == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(token)
	if err != nil || n < 0 {
		return 0, errgrpc.Field("page_token", "not a token of this method")
	}
	return n, nil
}
