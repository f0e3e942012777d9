// Package objectstore_test runs the object store suite against a real S3 server.
package objectstore_test

import (
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/s3store"
	"github.com/holdfast-io/holdfast/pkg/objectstore/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// buckets numbers the buckets of this package's tests.
var buckets atomic.Int64

// openStore returns a store of a new bucket.
func openStore(t testing.TB, server *testbed.S3, change func(*s3store.Config)) *s3store.Store {
	t.Helper()
	config, err := s3store.ParseConfig(server.LocationConfig())
	require.NoError(t, err)
	config.Bucket = fmt.Sprintf("bucket-%d", buckets.Add(1))
	config.Credentials = credentials.NewStaticCredentialsProvider(server.AccessKey, server.SecretKey, "")
	require.NoError(t, server.CreateBucket(t.Context(), config.Bucket))
	if change != nil {
		change(&config)
	}
	s, err := s3store.Open(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func TestConformance(t *testing.T) {
	server := testbed.StartS3T(t)
	storetest.Run(t, func(t testing.TB) objectstore.Store { return openStore(t, server, nil) })
}

// TestUploads leaves incomplete multipart uploads as a process killed in the middle does.
func TestUploads(t *testing.T) {
	server := testbed.StartS3T(t)
	storetest.RunUploads(t, func(t testing.TB) (objectstore.Store, func(string)) {
		var bucket string
		s := openStore(t, server, func(c *s3store.Config) { bucket = c.Bucket })
		return s, func(key string) {
			up, err := server.Client().CreateMultipartUpload(t.Context(), &s3.CreateMultipartUploadInput{Bucket: &bucket, Key: &key})
			require.NoError(t, err)
			_, err = server.Client().UploadPart(t.Context(), &s3.UploadPartInput{
				Bucket: &bucket, Key: &key, UploadId: up.UploadId, PartNumber: aws.Int32(1), Body: strings.NewReader("half of it"),
			})
			require.NoError(t, err)
		}
	})
}

// TestServerDecides shows that the server honours what creation relies on, and that Condition
// leaves nothing behind.
func TestServerDecides(t *testing.T) {
	s := openStore(t, testbed.StartS3T(t), func(c *s3store.Config) { c.Condition = s3store.NewCondition("metadata/holdfast/probe/") })
	honoured, err := s.Honoured(t.Context())
	require.NoError(t, err)
	require.True(t, honoured)
	require.NoError(t, s.List(t.Context(), "", func(i objectstore.Info) error {
		t.Errorf("%s was left", i.Key)
		return nil
	}))
}

func TestSignedLinkNeedsNoCredentials(t *testing.T) {
	s := openStore(t, testbed.StartS3T(t), nil)
	require.NoError(t, objectstore.PutBytes(t.Context(), s, "backups/b/b-logs.gz", []byte("\x1f\x8bgzip")))
	get := func(key string) *http.Response {
		url, err := s.SignGet(t.Context(), key, time.Minute)
		require.NoError(t, err)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
		require.NoError(t, err)
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, resp.Body.Close()); http.DefaultClient.CloseIdleConnections() })
		return resp
	}
	resp := get("backups/b/b-logs.gz")
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.Equal(t, "\x1f\x8bgzip", string(body))
	require.Empty(t, resp.Header.Get("Content-Encoding"))
	require.Equal(t, http.StatusNotFound, get("backups/b/absent").StatusCode)
}

func TestMissingBucketAndWrongKeysAreTold(t *testing.T) {
	server := testbed.StartS3T(t)
	noBucket := openStore(t, server, func(c *s3store.Config) { c.Bucket = "no-such-bucket" })
	none := func(objectstore.Info) error { return nil }
	require.ErrorIs(t, noBucket.List(t.Context(), "", none), objectstore.ErrNoBucket)
	require.ErrorIs(t, objectstore.CreateBytes(t.Context(), noBucket, "k", nil), objectstore.ErrNoBucket)
	for _, keys := range [][2]string{{server.AccessKey, "wrong secret"}, {"nobody", server.SecretKey}} {
		stranger := openStore(t, server, func(c *s3store.Config) {
			c.Credentials = credentials.NewStaticCredentialsProvider(keys[0], keys[1], "")
		})
		err := stranger.List(t.Context(), "", none)
		require.ErrorIs(t, err, objectstore.ErrAccess)
		require.NotContains(t, err.Error(), server.SecretKey)
		require.ErrorIs(t, objectstore.CreateBytes(t.Context(), stranger, "k", nil), objectstore.ErrAccess)
	}
}

// TestLargeObject is sent as a multipart upload from one reader.
func TestLargeObject(t *testing.T) {
	s := openStore(t, testbed.StartS3T(t), nil)
	const size = 130 << 20
	content := io.NewSectionReader(countingTransport{}, 0, size)
	require.NoError(t, s.Create(t.Context(), "large", content, size))
	rc, err := s.Get(t.Context(), "large")
	require.NoError(t, err)
	defer func() { require.NoError(t, rc.Close()) }()
	want, got := sha256.New(), sha256.New()
	_, err = io.Copy(want, io.NewSectionReader(countingTransport{}, 0, size))
	require.NoError(t, err)
	_, err = io.Copy(got, rc)
	require.NoError(t, err)
	require.Equal(t, want.Sum(nil), got.Sum(nil))
	require.ErrorIs(t, s.Create(t.Context(), "large", io.NewSectionReader(countingTransport{}, 0, size), size), objectstore.ErrExists)
}

// countingTransport is content without end that differs from place to place.
type countingTransport struct{}

func (countingTransport) ReadAt(p []byte, off int64) (int, error) {
	for i := range p {
		at := off + int64(i)
		p[i] = byte(at) ^ byte(at>>8) ^ byte(at>>16) ^ byte(at>>24)
	}
	return len(p), nil
}
