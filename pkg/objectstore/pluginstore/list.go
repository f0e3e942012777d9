package pluginstore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

const delimiter = "/"

// List implements objectstore.Reader; fn gets keys alone. The whole list is one message, which the
// plugin's limits bound.
func (s *Store) List(ctx context.Context, prefix string, fn func(objectstore.Info) error) error {
	if err := objectstore.CheckPrefix(prefix); err != nil {
		return err
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	keys, err := s.config.Plugin.ListObjects(ctx, s.config.Bucket, prefix)
	if err != nil {
		return fmt.Errorf("list %s: %w", prefix, err)
	}
	slices.Sort(keys)
	for _, key := range slices.Compact(keys) {
		if !strings.HasPrefix(key, prefix) {
			return s.unexpectedAnswerError("ListObjects", prefix, key)
		}
		if key == "" || strings.HasSuffix(key, delimiter) {
			continue // a console's "folder", no object of ours
		}
		err := fn(objectstore.Info{Key: key})
		if errors.Is(err, fs.SkipAll) {
			return nil
		}
		if err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// ListPrefixes implements objectstore.Reader.
func (s *Store) ListPrefixes(ctx context.Context, prefix string) ([]string, error) {
	if err := objectstore.CheckDir(prefix); err != nil {
		return nil, err
	}
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	found, err := s.config.Plugin.ListCommonPrefixes(ctx, s.config.Bucket, delimiter, prefix)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", prefix, err)
	}
	dirs := make([]string, 0, len(found))
	for _, p := range found {
		name, ok := strings.CutPrefix(p, prefix)
		name = strings.TrimSuffix(name, delimiter)
		if !ok || name == "" || strings.Contains(name, delimiter) {
			return nil, s.unexpectedAnswerError("ListCommonPrefixes", prefix, p)
		}
		dirs = append(dirs, name+delimiter)
	}
	slices.Sort(dirs)
	return slices.Compact(dirs), nil
}

// unexpectedAnswerError is an answer that would be misunderstood further on: it does not fit the prefix.
func (s *Store) unexpectedAnswerError(method, prefix, answer string) error {
	return &pluginhost.Error{Plugin: s.config.Plugin.Name(), Method: method, Err: fmt.Errorf(
		"%w: %.200q does not fit the prefix %q", pluginhost.ErrMalformed, answer, prefix)}
}

// SignGet implements objectstore.Signer. A plugin that answers with an error or something that is
// no URL makes none.
func (s *Store) SignGet(ctx context.Context, key string, ttl time.Duration) (string, error) {
	if err := checkCall(ctx, key); err != nil {
		return "", err
	}
	signed, err := s.config.Plugin.SignedURL(ctx, s.config.Bucket, key, ttl)
	var remote *pluginhost.RemoteError
	switch {
	case errors.As(err, &remote), errors.Is(err, pluginhost.ErrPanicked):
		return "", fmt.Errorf("sign %s: %w: %w", key, objectstore.ErrUnsigned, err)
	case err != nil:
		return "", fmt.Errorf("sign %s: %w", key, err)
	}
	u, err := url.Parse(signed)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		// The text stays out of the error: it may be as good as a key.
		return "", fmt.Errorf("sign %s: %w: plugin %s answered with something else", key, objectstore.ErrUnsigned, s.config.Plugin.Name())
	}
	return signed, nil
}
