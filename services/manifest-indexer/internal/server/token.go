package server

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	manifestv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/manifest/v1"
)

// pageToken is a page token: the last item of the page before, and what was asked for.
type pageToken struct {
	Query []byte       `json:"q"`
	After manifest.Key `json:"a"`
}

// queryHash identifies the backup and the filters of a request.
func queryHash(req *manifestv1.ListItemsRequest) ([]byte, error) {
	query := proto.CloneOf(req)
	query.PageToken, query.PageSize = "", 0
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(query)
	if err != nil {
		return nil, fmt.Errorf("page token: %w", err)
	}
	sum := sha256.Sum256(data)
	return sum[:], nil
}

func encodeToken(req *manifestv1.ListItemsRequest, after manifest.Key) (string, error) {
	query, err := queryHash(req)
	if err != nil {
		return "", err
	}
	data, err := json.Marshal(pageToken{Query: query, After: after})
	if err != nil {
		return "", err
	}
	return base64.RawURLEncoding.EncodeToString(data), nil
}

func decodeToken(req *manifestv1.ListItemsRequest) (*manifest.Key, error) {
	text := req.GetPageToken()
	if text == "" {
		return nil, nil //nolint:nilnil // no token means the first page
	}
	query, err := queryHash(req)
	if err != nil {
		return nil, err
	}
	var t pageToken
	data, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil {
		err = json.Unmarshal(data, &t)
	}
	if err == nil && !bytes.Equal(t.Query, query) {
		err = errors.New("made for another backup or other filters")
	}
	if err != nil {
		return nil, errgrpc.Field("page_token", "%v", err)
	}
	return &t.After, nil
}
