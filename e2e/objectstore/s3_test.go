// Package objectstore_test runs the object store suite against a real S3 server.
package objectstore_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/holdfast-io/holdfast/e2e/testbed"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/s3store"
	"github.com/holdfast-io/holdfast/pkg/objectstore/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// buckets numbers the buckets of this package's tests.
var buckets atomic.Int64

// open returns a store of a new bucket.
func open(t testing.TB, server *testbed.S3, change func(*s3store.Config)) *s3store.Store {
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
	storetest.Run(t, func(t testing.TB) objectstore.Store { return open(t, server, nil) })
}
