package testbed_test

import (
	"bytes"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
)

func TestS3ServerStoresAndConditionallyCreates(t *testing.T) {
	server := testbed.StartS3T(t)
	require.NoError(t, server.CreateBucket(t.Context(), "backups"))
	client := server.Client()
	put := func() error {
		_, err := client.PutObject(t.Context(), &s3.PutObjectInput{
			Bucket: aws.String("backups"), Key: aws.String("a/b"), Body: bytes.NewReader([]byte("content")), IfNoneMatch: aws.String("*"),
		})
		return err
	}
	require.NoError(t, put())
	require.ErrorContains(t, put(), "PreconditionFailed")

	keys, err := server.Keys(t.Context(), "backups")
	require.NoError(t, err)
	require.Equal(t, []string{"a/b"}, keys)
	require.Contains(t, server.CredentialsFile(), server.SecretKey)
	require.Equal(t, server.Endpoint, server.LocationConfig()["s3Url"])
}
