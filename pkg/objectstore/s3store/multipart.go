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

// uploadMultipart uploads parts and completes them as one object; on failure nothing stays on the server.
func (s *Store) uploadMultipart(ctx context.Context, w objectWrite, parts []partSource) (err error) {
	up, err := s.client.CreateMultipartUpload(ctx, &s3.CreateMultipartUploadInput{
		Bucket: &s.config.Bucket, Key: &w.key, Metadata: w.writeMetadata(), ChecksumAlgorithm: s.config.Checksum,
		ServerSideEncryption: s.config.ServerSideEncryption, SSEKMSKeyId: optionalString(s.config.KMSKeyID), Tagging: optionalString(s.config.Tagging),
	})
	if err != nil {
		return err
	}
	u := multipartUpload{store: s, key: w.key, id: up.UploadId}
	defer func() {
		if err != nil {
			u.abortUpload(ctx)
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
			done[i], err = u.uploadPart(gctx, int32(i+1), &parts[i])
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	_, err = s.client.CompleteMultipartUpload(ctx, &s3.CompleteMultipartUploadInput{
		Bucket: &s.config.Bucket, Key: &u.key, UploadId: u.id, IfNoneMatch: w.ifNoneMatch(),
		MultipartUpload: &types.CompletedMultipartUpload{Parts: done},
	})
	return err
}

// multipartUpload is one upload that is neither completed nor aborted. Its parts may be written at
// the same time.
type multipartUpload struct {
	store *Store
	key   string
	id    *string
}

func (u *multipartUpload) abortUpload(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTimeout)
	defer cancel()
	// A failure leaves parts that a bucket rule for unfinished uploads removes; the caller's error
	// matters more.
	_, _ = u.store.client.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{Bucket: &u.store.config.Bucket, Key: &u.key, UploadId: u.id})
}

func (u *multipartUpload) uploadPart(ctx context.Context, n int32, p *partSource) (types.CompletedPart, error) {
	if p.body != nil {
		return u.sendPart(ctx, n, p.body)
	}
	if len(p.pieces) == 1 && p.pieces[0].Data == nil && p.size >= minPart && !u.store.noCopy.Load() {
		done, err := u.copyPart(ctx, n, p.pieces[0])
		if errorCode(err) != "NotImplemented" {
			return done, err
		}
		u.store.noCopy.Store(true)
	}
	if p.size > maxMerged {
		return u.streamPart(ctx, n, p.pieces[0])
	}
	data, err := mergePieces(ctx, u.store, p.pieces)
	if err != nil {
		return types.CompletedPart{}, err
	}
	return u.sendPart(ctx, n, &uploadWindow{r: bytes.NewReader(data), size: p.size})
}

func (u *multipartUpload) copyPart(ctx context.Context, n int32, p objectstore.Source) (types.CompletedPart, error) {
	from := (&url.URL{Path: u.store.config.Bucket + "/" + p.Key}).EscapedPath()
	out, err := u.store.client.UploadPartCopy(ctx, &s3.UploadPartCopyInput{
		Bucket: &u.store.config.Bucket, Key: &u.key, UploadId: u.id, PartNumber: &n, CopySource: &from,
		CopySourceRange: aws.String(byteRange(p.Offset, p.Length)),
	})
	if err != nil {
		return types.CompletedPart{}, sourceError(p, err)
	}
	if out.CopyPartResult == nil {
		return types.CompletedPart{}, fmt.Errorf("copy %s: the server's answer has no result", p.Key)
	}
	return completedPart(n, out.CopyPartResult.ETag, *out.CopyPartResult), nil
}

func (u *multipartUpload) sendPart(ctx context.Context, n int32, body *uploadWindow) (types.CompletedPart, error) {
	if _, err := body.Seek(0, io.SeekStart); err != nil {
		return types.CompletedPart{}, err
	}
	out, err := u.store.client.UploadPart(ctx, &s3.UploadPartInput{
		Bucket: &u.store.config.Bucket, Key: &u.key, UploadId: u.id, PartNumber: &n, Body: body, ContentLength: &body.size,
		ChecksumAlgorithm: u.store.config.Checksum,
	})
	if err != nil {
		return types.CompletedPart{}, err
	}
	return completedPart(n, out.ETag, types.CopyPartResult{
		ChecksumCRC32: out.ChecksumCRC32, ChecksumCRC32C: out.ChecksumCRC32C, ChecksumCRC64NVME: out.ChecksumCRC64NVME,
		ChecksumSHA1: out.ChecksumSHA1, ChecksumSHA256: out.ChecksumSHA256,
	}), nil
}

// streamPart copies a large piece through this process without holding it, for servers that cannot
// copy.
func (u *multipartUpload) streamPart(ctx context.Context, n int32, p objectstore.Source) (types.CompletedPart, error) {
	r := &remoteSource{ctx: ctx, from: u.store, src: p}
	defer r.closeBody()
	return u.sendPart(ctx, n, &uploadWindow{r: r, size: p.Length})
}
