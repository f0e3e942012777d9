package s3store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

const (
	// writeMark is object metadata that tells a writer whether an object in its way is its own: a request may be repeated
	// after its answer was lost.
	writeMark = "holdfast-write"
	// singlePut is the largest object sent as one request.
	singlePut = 64 << 20
)

// Put implements objectstore.Writer.
func (s *Store) Put(ctx context.Context, key string, r io.ReadSeeker, size int64) error {
	return s.upload(ctx, "put", key, r, size, false)
}

// Create implements objectstore.Writer.
func (s *Store) Create(ctx context.Context, key string, r io.ReadSeeker, size int64) error {
	return s.upload(ctx, "create", key, r, size, true)
}

func (s *Store) upload(ctx context.Context, op, key string, r io.ReadSeeker, size int64, create bool) error {
	if err := objectstore.CheckKey(key); err != nil {
		return err
	}
	base, err := checkSize(r, size)
	if err != nil {
		return fmt.Errorf("%s %s: %w", op, key, err)
	}
	if create {
		if err := s.refuseExisting(ctx, op, key); err != nil {
			return err
		}
	}
	mark := rand.Text()
	if size > singlePut {
		err = s.multipart(ctx, key, mark, create, windows(r, base, size))
	} else {
		err = s.put(ctx, key, mark, create, &window{r: r, base: base, size: size})
	}
	return s.settle(ctx, op, key, mark, create, err)
}

func (s *Store) put(ctx context.Context, key, mark string, create bool, body *window) error {
	in := &s3.PutObjectInput{
		Bucket: &s.config.Bucket, Key: &key, Body: body, ContentLength: &body.size, Metadata: map[string]string{writeMark: mark},
		ServerSideEncryption: s.config.ServerSideEncryption, ChecksumAlgorithm: s.config.Checksum,
		SSEKMSKeyId: optional(s.config.KMSKeyID), Tagging: optional(s.config.Tagging), IfNoneMatch: s.condition(create),
	}
	_, err := s.client.PutObject(ctx, in)
	return err
}

// settle finds out who won when the server says that the object exists or that another write is under way.
func (s *Store) settle(ctx context.Context, op, key, mark string, create bool, err error) error {
	if !create {
		return failed(op, key, err)
	}
	conflict := errors.Is(sentinel(err), objectstore.ErrExists) || code(err) == "ConditionalRequestConflict"
	if err != nil && !conflict {
		return failed(op, key, err)
	}
	if err == nil && !s.unconditional.Load() {
		return nil
	}
	out, herr := s.head(ctx, key)
	switch {
	case herr == nil && out.Metadata[writeMark] == mark:
		return nil
	case herr == nil:
		return fmt.Errorf("%s %s: %w", op, key, objectstore.ErrExists)
	case err != nil:
		return failed(op, key, err)
	}
	return herr
}

// refuseExisting is the exists-check of servers without conditional creation.
func (s *Store) refuseExisting(ctx context.Context, op, key string) error {
	if !s.unconditional.Load() {
		return nil
	}
	_, err := s.head(ctx, key)
	if errors.Is(err, objectstore.ErrNotFound) {
		return nil
	}
	if err == nil {
		err = fmt.Errorf("%s %s: %w", op, key, objectstore.ErrExists)
	}
	return err
}

func (s *Store) condition(create bool) *string {
	if create && !s.unconditional.Load() {
		return aws.String("*")
	}
	return nil
}

// Probe finds out whether the server honours conditional creation: it creates key twice and deletes it.
func (s *Store) Probe(ctx context.Context, key string) (conditional bool, err error) {
	if err := objectstore.CheckKey(key); err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, s.Delete(ctx, key)) }()
	for range 2 {
		_, err = s.client.PutObject(ctx, &s3.PutObjectInput{
			Bucket: &s.config.Bucket, Key: &key, IfNoneMatch: aws.String("*"), ChecksumAlgorithm: s.config.Checksum,
			ServerSideEncryption: s.config.ServerSideEncryption, SSEKMSKeyId: optional(s.config.KMSKeyID),
		})
		if errors.Is(sentinel(err), objectstore.ErrExists) {
			return true, nil
		}
		if code(err) == "NotImplemented" {
			return false, nil
		}
		if err != nil {
			return false, failed("probe", key, err)
		}
	}
	return false, nil
}

func optional(v string) *string {
	if v == "" {
		return nil
	}
	return &v
}

// checksums copies what the server computed for a part, so that the completed upload can be verified as a whole.
func completed(n int32, etag *string, sum types.CopyPartResult) types.CompletedPart {
	return types.CompletedPart{
		PartNumber: &n, ETag: etag, ChecksumCRC32: sum.ChecksumCRC32, ChecksumCRC32C: sum.ChecksumCRC32C,
		ChecksumCRC64NVME: sum.ChecksumCRC64NVME, ChecksumSHA1: sum.ChecksumSHA1, ChecksumSHA256: sum.ChecksumSHA256,
	}
}
