package s3store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	smithytime "github.com/aws/smithy-go/time"

	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

const (
	// writeMark is object metadata that shows a writer whether an object in its way is its own: a
	// request may be repeated after its answer was lost.
	writeMark = "holdfast-write"
	// singlePut is the largest object sent as one request.
	singlePut = 64 << 20
)

// Put implements objectstore.Writer.
func (s *Store) Put(ctx context.Context, key string, r io.ReadSeeker, size int64) error {
	return s.uploadObject(ctx, "put", key, r, size, false)
}

// Create implements objectstore.Writer.
func (s *Store) Create(ctx context.Context, key string, r io.ReadSeeker, size int64) error {
	return s.uploadObject(ctx, "create", key, r, size, true)
}

func (s *Store) uploadObject(ctx context.Context, op, key string, r io.ReadSeeker, size int64, create bool) error {
	if err := objectstore.CheckKey(key); err != nil {
		return err
	}
	base, err := objectstore.CheckSize(r, size)
	if err != nil {
		return fmt.Errorf("%s %s: %w", op, key, err)
	}
	if size > singlePut {
		w, err := s.beginWrite(ctx, op, key, create)
		if err != nil {
			return err
		}
		return s.resolveConflict(ctx, w, s.uploadMultipart(ctx, w, cutWindows(r, base, size)))
	}
	for tried := 1; ; tried++ {
		w, err := s.beginWrite(ctx, op, key, create)
		if err != nil {
			return err
		}
		err = s.resolveConflict(ctx, w, s.putObject(ctx, w, &uploadWindow{r: r, base: base, size: size}))
		if tried == attempts || !errors.As(err, new(*vanishedError)) {
			return err
		}
		if err := smithytime.SleepWithContext(ctx, vanishedPause<<tried); err != nil {
			return fmt.Errorf("%s %s: %w", op, key, context.Cause(ctx))
		}
	}
}

// vanishedPause is half of the first pause before such a create is retried.
const vanishedPause = 10 * time.Millisecond

// vanishedError is a create that was refused because of an object that is not there any more when
// it is asked for: another writer deleted it, or the server is in the middle of that.
type vanishedError struct{ error }

// Unwrap returns what the server answered.
func (e *vanishedError) Unwrap() error { return e.error }

// beginWrite begins a write, which with create must not replace anything.
func (s *Store) beginWrite(ctx context.Context, op, key string, create bool) (objectWrite, error) {
	if create {
		return s.beginCreate(ctx, op, key)
	}
	return objectWrite{op: op, key: key, mark: rand.Text()}, nil
}

// objectWrite is one object being written.
type objectWrite struct {
	op, key, mark string
	create        bool // must not replace anything
	conditional   bool // and the server enforces it
}

// beginCreate begins a create-if-absent. Where the server does not honour conditions, the check is
// here.
func (s *Store) beginCreate(ctx context.Context, op, key string) (objectWrite, error) {
	w := objectWrite{op: op, key: key, mark: rand.Text(), create: true}
	var err error
	if w.conditional, err = s.config.Condition.isHonoured(ctx, s); err != nil || w.conditional {
		return w, err
	}
	_, err = s.headObject(ctx, key)
	if errors.Is(err, objectstore.ErrNotFound) {
		return w, nil
	}
	if err == nil {
		err = fmt.Errorf("%s %s: %w", op, key, objectstore.ErrExists)
	}
	return w, err
}

func (w *objectWrite) ifNoneMatch() *string {
	if w.conditional {
		return aws.String("*")
	}
	return nil
}

func (w *objectWrite) writeMetadata() map[string]string { return map[string]string{writeMark: w.mark} }

func (s *Store) putObject(ctx context.Context, w objectWrite, body *uploadWindow) error {
	_, err := s.client.PutObject(ctx, &s3.PutObjectInput{
		Bucket: &s.config.Bucket, Key: &w.key, Body: body, ContentLength: &body.size, Metadata: w.writeMetadata(), IfNoneMatch: w.ifNoneMatch(),
		ServerSideEncryption: s.config.ServerSideEncryption, ChecksumAlgorithm: s.config.Checksum,
		SSEKMSKeyId: optionalString(s.config.KMSKeyID), Tagging: optionalString(s.config.Tagging),
	})
	return err
}

// resolveConflict finds out which write won when the server answers that the object exists, that another
// write is under way or that the upload is unknown (it may have been completed by a request whose
// answer was lost), and always where the server does not decide it.
func (s *Store) resolveConflict(ctx context.Context, w objectWrite, err error) error {
	exists := errors.Is(sentinelFor(err), objectstore.ErrExists) || errorCode(err) == "ConditionalRequestConflict" || errorCode(err) == "NoSuchUpload"
	if !w.create || err != nil && !exists || err == nil && w.conditional {
		return opError(w.op, w.key, err)
	}
	out, herr := s.headObject(ctx, w.key)
	switch {
	case herr == nil && out.Metadata[writeMark] == w.mark:
		return nil
	case herr == nil:
		return fmt.Errorf("%s %s: %w", w.op, w.key, objectstore.ErrExists)
	case err != nil && errors.Is(herr, objectstore.ErrNotFound):
		return &vanishedError{opError(w.op, w.key, err)}
	case err != nil:
		return opError(w.op, w.key, err)
	}
	return herr
}

func optionalString(v string) *string {
	if v == "" {
		return nil
	}
	return &v
}

// completedPart names a part of a finished upload; it copies what the server computed for a part, so
// that the completed upload can be verified as a whole.
func completedPart(n int32, etag *string, sum types.CopyPartResult) types.CompletedPart {
	return types.CompletedPart{
		PartNumber: &n, ETag: etag, ChecksumCRC32: sum.ChecksumCRC32, ChecksumCRC32C: sum.ChecksumCRC32C,
		ChecksumCRC64NVME: sum.ChecksumCRC64NVME, ChecksumSHA1: sum.ChecksumSHA1, ChecksumSHA256: sum.ChecksumSHA256,
	}
}
