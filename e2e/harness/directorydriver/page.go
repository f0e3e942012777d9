package directorydriver

import (
	"maps"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// after begins a token; the id of the last entry of the page before follows.
const after = "after/"

// cutPage returns the ids of one page of a list in their order, and the token of the next. Zero for limit is all.
func cutPage[T any](all map[string]T, token string, limit int32) (ids []string, next string, err error) {
	last, ok := strings.CutPrefix(token, after)
	switch {
	case limit < 0:
		return nil, "", status.Error(codes.InvalidArgument, "max_entries is negative")
	case token != "" && !ok:
		return nil, "", status.Errorf(codes.Aborted, "starting_token %q is not one of this driver", token)
	}
	for _, id := range slices.Sorted(maps.Keys(all)) {
		if id > last {
			ids = append(ids, id)
		}
	}
	if n := int(limit); n > 0 && n < len(ids) {
		return ids[:n], after + ids[n-1], nil
	}
	return ids, "", nil
}
