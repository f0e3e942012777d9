package gate_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/holdfast-io/holdfast/e2e/harness/gate"
	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRequestsAreHeldSlowedAndCounted(t *testing.T) {
	server := testbed.StartS3T(t)
	require.NoError(t, server.CreateBucket(t.Context(), "held"))
	g, err := gate.Start(server.Endpoint)
	require.NoError(t, err)
	t.Cleanup(g.Close)
	client := server.Client()
	through := s3.New(client.Options(), func(o *s3.Options) { o.BaseEndpoint = aws.String(g.URL) })
	put := func(key string) error {
		_, err := through.PutObject(t.Context(), &s3.PutObjectInput{
			Bucket: aws.String("held"), Key: aws.String(key), Body: bytes.NewReader([]byte("x")), IfNoneMatch: aws.String("*"),
		})
		return err
	}
	hold := g.Hold(gate.Writes("parts/"))
	require.NoError(t, put("a/other"), "what does not match goes on; the signature survives the proxy")
	done := make(chan error, 1)
	go func() { done <- put("a/parts/1") }()
	<-hold.Reached()
	keys, err := server.Keys(t.Context(), "held")
	require.NoError(t, err)
	require.Equal(t, []string{"a/other"}, keys, "it did not get there")
	hold.Release()
	require.NoError(t, <-done)
	require.ErrorContains(t, put("a/parts/1"), "PreconditionFailed")
	require.Equal(t, 2, g.Seen(gate.Writes("parts/")))

	const delay = 200 * time.Millisecond
	g.Slow(gate.Writes("slow"), delay)
	began := time.Now()
	require.NoError(t, put("slow"))
	require.GreaterOrEqual(t, time.Since(began), delay)
	g.Slow(nil, 0)
}
