package s3store

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// Condition finds out once whether a server honours conditional creation: before the first create
// it creates a probe object twice and deletes it. It is safe for concurrent use.
type Condition struct {
	prefix string

	mu     sync.Mutex
	known  bool
	answer bool
}

// NewCondition returns a condition that probes with a random key under prefix, which ends in "/".
func NewCondition(prefix string) *Condition { return &Condition{prefix: prefix} }

// Honoured probes unless it has, and returns the outcome; after an error it is unknown.
func (s *Store) Honoured(ctx context.Context) (bool, error) {
	return s.config.Condition.isHonoured(ctx, s)
}

func (c *Condition) isHonoured(ctx context.Context, s *Store) (bool, error) {
	if c == nil {
		return true, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known {
		return c.answer, nil
	}
	ok, err := s.probeCondition(ctx, c.prefix+rand.Text())
	if err == nil {
		c.known, c.answer = true, ok
	}
	return ok, err
}

// probeCondition creates key twice. A server that honours the condition refuses the second time.
func (s *Store) probeCondition(ctx context.Context, key string) (honoured bool, err error) {
	if err := objectstore.CheckKey(key); err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, s.Delete(ctx, key)) }()
	for range 2 {
		_, err = s.client.PutObject(ctx, &s3.PutObjectInput{
			Bucket: &s.config.Bucket, Key: &key, IfNoneMatch: aws.String("*"), ChecksumAlgorithm: s.config.Checksum,
			ServerSideEncryption: s.config.ServerSideEncryption, SSEKMSKeyId: optionalString(s.config.KMSKeyID),
		})
		if errors.Is(sentinelFor(err), objectstore.ErrExists) {
			return true, nil
		}
		if errorCode(err) == "NotImplemented" {
			return false, nil
		}
		if err != nil {
			return false, opError("probe", key, err)
		}
	}
	return false, nil
}
