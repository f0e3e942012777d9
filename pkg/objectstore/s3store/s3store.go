// Package s3store keeps objects in a bucket of AWS S3 or of a server that speaks its protocol.
//
// Creation is conditional on the server (If-None-Match: *), also when a multipart upload completes.
// A server that ignores the condition is found by Condition; with such a one creation is an
// exists-check, a write and a comparison, which is not atomic: two clusters must not share such a
// bucket.
package s3store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// Store is one bucket. Requests are retried by the SDK.
type Store struct {
	client    *s3.Client
	presign   *s3.PresignClient
	transport *http.Transport
	config    Config
	noCopy    atomic.Bool // the server does not know UploadPartCopy
}

var (
	_ objectstore.Store  = (*Store)(nil)
	_ objectstore.Signer = (*Store)(nil)
)

// Close drops idle connections.
func (s *Store) Close() error {
	s.transport.CloseIdleConnections()
	return nil
}

// Get implements objectstore.Reader.
func (s *Store) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	return s.GetRange(ctx, key, 0, -1)
}

// GetRange implements objectstore.Reader.
func (s *Store) GetRange(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	if err := objectstore.CheckKey(key); err != nil {
		return nil, err
	}
	if err := objectstore.CheckRange(key, off); err != nil {
		return nil, err
	}
	if n == 0 { // HTTP has no empty ranges
		_, err := s.Stat(ctx, key)
		return io.NopCloser(strings.NewReader("")), err
	}
	in := &s3.GetObjectInput{Bucket: &s.config.Bucket, Key: &key}
	if off > 0 || n > 0 {
		in.Range = aws.String(byteRange(off, n))
	}
	out, err := s.client.GetObject(ctx, in)
	if err == nil {
		return out.Body, nil
	}
	if errorCode(err) == "InvalidRange" || httpStatus(err) == http.StatusRequestedRangeNotSatisfiable {
		return io.NopCloser(strings.NewReader("")), nil
	}
	return nil, opError("get", key, err)
}

// Stat implements objectstore.Reader.
func (s *Store) Stat(ctx context.Context, key string) (objectstore.Info, error) {
	out, err := s.headObject(ctx, key)
	if err != nil {
		return objectstore.Info{}, err
	}
	return objectstore.Info{
		Key: key, Size: aws.ToInt64(out.ContentLength), ETag: aws.ToString(out.ETag), ModTime: aws.ToTime(out.LastModified),
	}, nil
}

func (s *Store) headObject(ctx context.Context, key string) (*s3.HeadObjectOutput, error) {
	if err := objectstore.CheckKey(key); err != nil {
		return nil, err
	}
	out, err := s.client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &s.config.Bucket, Key: &key})
	if err != nil {
		return nil, opError("stat", key, err)
	}
	return out, nil
}

// List implements objectstore.Reader: one request for each 1,000 objects.
func (s *Store) List(ctx context.Context, prefix string, fn func(objectstore.Info) error) error {
	if err := objectstore.CheckPrefix(prefix); err != nil {
		return err
	}
	pages := s3.NewListObjectsV2Paginator(s.client, &s3.ListObjectsV2Input{Bucket: &s.config.Bucket, Prefix: &prefix})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return opError("list", prefix, err)
		}
		for i := range page.Contents {
			o := &page.Contents[i]
			key := aws.ToString(o.Key)
			if strings.HasSuffix(key, "/") {
				continue // a console's "folder", no object of ours
			}
			err := fn(objectstore.Info{Key: key, Size: aws.ToInt64(o.Size), ETag: aws.ToString(o.ETag), ModTime: aws.ToTime(o.LastModified)})
			if errors.Is(err, fs.SkipAll) {
				return nil
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// ListPrefixes implements objectstore.Reader.
func (s *Store) ListPrefixes(ctx context.Context, prefix string) ([]string, error) {
	if err := objectstore.CheckDir(prefix); err != nil {
		return nil, err
	}
	var dirs []string
	pages := s3.NewListObjectsV2Paginator(s.client, &s3.ListObjectsV2Input{
		Bucket: &s.config.Bucket, Prefix: &prefix, Delimiter: aws.String("/"),
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, opError("list", prefix, err)
		}
		for _, p := range page.CommonPrefixes {
			dirs = append(dirs, strings.TrimPrefix(aws.ToString(p.Prefix), prefix))
		}
	}
	return dirs, nil
}

// Delete implements objectstore.Writer.
func (s *Store) Delete(ctx context.Context, key string) error {
	if err := objectstore.CheckKey(key); err != nil {
		return err
	}
	_, err := s.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &s.config.Bucket, Key: &key})
	if err = opError("delete", key, err); errors.Is(err, objectstore.ErrNotFound) {
		return nil
	}
	return err
}

// SignGet implements objectstore.Signer, with the public address where one is configured.
func (s *Store) SignGet(ctx context.Context, key string, ttl time.Duration) (string, error) {
	if err := objectstore.CheckKey(key); err != nil {
		return "", err
	}
	req, err := s.presign.PresignGetObject(ctx, &s3.GetObjectInput{Bucket: &s.config.Bucket, Key: &key}, s3.WithPresignExpires(ttl))
	if err != nil {
		return "", opError("sign", key, err)
	}
	return req.URL, nil
}

func byteRange(off, n int64) string {
	if n < 0 || n > math.MaxInt64-off {
		return fmt.Sprintf("bytes=%d-", off)
	}
	return fmt.Sprintf("bytes=%d-%d", off, off+n-1)
}
