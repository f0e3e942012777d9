package server

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/errgrpc"
)

// pageToken is a page token: the last item of the page before, and what was asked for.
type pageToken struct {
	Query []byte       `json:"q"`
	After manifest.Key `json:"a"`
}

// pagedRequest asks for a page of a list.
type pagedRequest interface {
	proto.Message
	GetPageToken() string
	GetPageSize() int32
}

// pageSizeOf returns how many entries a page has at most.
func pageSizeOf(req pagedRequest) int {
	return cmp.Or(int(req.GetPageSize()), defaultPage)
}

// queryHash identifies what a request asks for, whichever page it is.
func queryHash(req pagedRequest) ([]byte, error) {
	query := proto.CloneOf[proto.Message](req)
	fields := query.ProtoReflect().Descriptor().Fields()
	query.ProtoReflect().Clear(fields.ByName("page_token"))
	query.ProtoReflect().Clear(fields.ByName("page_size"))
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(query)
	if err != nil {
		return nil, fmt.Errorf("page token: %w", err)
	}
	sum := sha256.Sum256(data)
	return sum[:], nil
}

func encodeToken(req pagedRequest, after manifest.Key) (string, error) {
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

func decodeToken(req pagedRequest) (*manifest.Key, error) {
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
