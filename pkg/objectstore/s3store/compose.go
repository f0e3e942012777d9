package s3store

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/url"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

const (
	// composeWorkers bounds the parts in flight, and with them memory: each may hold one merged
	// part.
	composeWorkers = 4
	// abortTimeout bounds the clean-up of a failed upload, which also runs after a cancel.
	abortTimeout = 30 * time.Second
)

// Compose implements objectstore.Writer with UploadPartCopy. Pieces under 5 MiB go through this
// process, at most 20 MiB at a time; a server that does not know UploadPartCopy gets everything
// that way.
func (s *Store) Compose(ctx context.Context, key string, src []objectstore.Source) (objectstore.Info, error) {
	if err := objectstore.CheckKey(key); err != nil {
		return objectstore.Info{}, err
	}
	src, total, err := s.resolve(ctx, src)
	if err != nil {
		return objectstore.Info{}, fmt.Errorf("compose %s: %w", key, err)
	}
	w, err := s.creation(ctx, "compose", key)
	if err != nil {
		return objectstore.Info{}, err
	}
	if total < minPart {
		err = s.composeSmall(ctx, w, src)
	} else {
		var parts []partSource
		if parts, err = plan(src); err == nil {
			err = s.multipart(ctx, w, parts)
		}
	}
	if err := s.settle(ctx, w, err); err != nil {
		return objectstore.Info{}, err
	}
	return s.Stat(ctx, key)
}

func (s *Store) composeSmall(ctx context.Context, w write, src []objectstore.Source) error {
	data, err := s.merge(ctx, src)
	if err != nil {
		return err
	}
	return s.put(ctx, w, &window{r: bytes.NewReader(data), size: int64(len(data))})
}

// multipart uploads parts and completes them as one object; on failure nothing stays on the server.
func (s *Store) multipart(ctx context.Context, w write, parts []partSource) (err error) {
	key := w.key
	up, err := s.client.CreateMultipartUpload(ctx, &s3.CreateMultipartUploadInput{
		Bucket: &s.config.Bucket, Key: &key, Metadata: w.metadata(), ChecksumAlgorithm: s.config.Checksum,
		ServerSideEncryption: s.config.ServerSideEncryption, SSEKMSKeyId: optional(s.config.KMSKeyID), Tagging: optional(s.config.Tagging),
	})
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			s.abort(ctx, key, up.UploadId)
		}
	}()
	done := make([]types.CompletedPart, len(parts))
	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(composeWorkers)
	if len(parts) > 0 && parts[0].body != nil {
		group.SetLimit(1) // windows share one reader
	}
	for i := range parts {
		group.Go(func() (err error) {
			done[i], err = s.part(gctx, key, up.UploadId, int32(i+1), &parts[i])
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	_, err = s.client.CompleteMultipartUpload(ctx, &s3.CompleteMultipartUploadInput{
		Bucket: &s.config.Bucket, Key: &key, UploadId: up.UploadId, IfNoneMatch: w.ifNoneMatch(),
		MultipartUpload: &types.CompletedMultipartUpload{Parts: done},
	})
	return err
}

func (s *Store) abort(ctx context.Context, key string, id *string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTimeout)
	defer cancel()
	// A failure leaves parts that a bucket rule for unfinished uploads removes; the caller's error
	// matters more.
	_, _ = s.client.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{Bucket: &s.config.Bucket, Key: &key, UploadId: id})
}

func (s *Store) part(ctx context.Context, key string, id *string, n int32, p *partSource) (types.CompletedPart, error) {
	if p.body != nil {
		return s.sendPart(ctx, key, id, n, p.body)
	}
	if len(p.pieces) == 1 && p.pieces[0].Data == nil && p.size >= minPart && !s.noCopy.Load() {
		done, err := s.copyPart(ctx, key, id, n, p.pieces[0])
		if code(err) != "NotImplemented" {
			return done, err
		}
		s.noCopy.Store(true)
	}
	if p.size > maxMerged {
		return s.streamPart(ctx, key, id, n, p.pieces[0])
	}
	data, err := s.merge(ctx, p.pieces)
	if err != nil {
		return types.CompletedPart{}, err
	}
	return s.sendPart(ctx, key, id, n, &window{r: bytes.NewReader(data), size: p.size})
}

func (s *Store) copyPart(ctx context.Context, key string, id *string, n int32, p objectstore.Source) (types.CompletedPart, error) {
	from := (&url.URL{Path: s.config.Bucket + "/" + p.Key}).EscapedPath()
	out, err := s.client.UploadPartCopy(ctx, &s3.UploadPartCopyInput{
		Bucket: &s.config.Bucket, Key: &key, UploadId: id, PartNumber: &n, CopySource: &from,
		CopySourceRange: aws.String(byteRange(p.Offset, p.Length)),
	})
	if err != nil {
		return types.CompletedPart{}, sourceError(p, err)
	}
	if out.CopyPartResult == nil {
		return types.CompletedPart{}, fmt.Errorf("copy %s: the server's answer has no result", p.Key)
	}
	return completed(n, out.CopyPartResult.ETag, *out.CopyPartResult), nil
}

func (s *Store) sendPart(ctx context.Context, key string, id *string, n int32, body *window) (types.CompletedPart, error) {
	if _, err := body.Seek(0, io.SeekStart); err != nil {
		return types.CompletedPart{}, err
	}
	out, err := s.client.UploadPart(ctx, &s3.UploadPartInput{
		Bucket: &s.config.Bucket, Key: &key, UploadId: id, PartNumber: &n, Body: body, ContentLength: &body.size,
		ChecksumAlgorithm: s.config.Checksum,
	})
	if err != nil {
		return types.CompletedPart{}, err
	}
	return completed(n, out.ETag, types.CopyPartResult{
		ChecksumCRC32: out.ChecksumCRC32, ChecksumCRC32C: out.ChecksumCRC32C, ChecksumCRC64NVME: out.ChecksumCRC64NVME,
		ChecksumSHA1: out.ChecksumSHA1, ChecksumSHA256: out.ChecksumSHA256,
	}), nil
}
