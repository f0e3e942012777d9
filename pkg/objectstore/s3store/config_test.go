package s3store

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/stretchr/testify/require"
)

func TestParseConfig(t *testing.T) {
	c, err := ParseConfig(map[string]string{
		"region": "eu-west-1", "s3Url": "https://s3.example:9000/", "publicUrl": "http://public.example", "s3ForcePathStyle": "true",
		"insecureSkipTLSVerify": "true", "profile": "team", "checksumAlgorithm": "", "kmsKeyId": "key", "tagging": "a=b&c=d",
		"signatureVersion": "4", "enableSharedConfig": "true",
	})
	require.NoError(t, err)
	require.Equal(t, Config{
		Region: "eu-west-1", Endpoint: "https://s3.example:9000", PublicURL: "http://public.example", PathStyle: true,
		InsecureSkipTLSVerify: true, Profile: "team", KMSKeyID: "key", ServerSideEncryption: types.ServerSideEncryptionAwsKms, Tagging: "a=b&c=d",
	}, c)
	c, err = ParseConfig(nil)
	require.NoError(t, err)
	require.Equal(t, types.ChecksumAlgorithmCrc32, c.Checksum)
}

func TestParseConfigNamesTheKey(t *testing.T) {
	for key, value := range map[string]string{
		"bucket": "b", "Region": "x", "s3Url": "ftp://x", "publicUrl": "http://user:password@host", "s3ForcePathStyle": "maybe",
		"checksumAlgorithm": "MD4", "serverSideEncryption": "rot13", "tagging": "%zz", "signatureVersion": "2",
		"customerKeyEncryptionFile": "f", "customerKeyEncryptionSecret": "s/k", "insecureSkipTLSVerify": "",
	} {
		_, err := ParseConfig(map[string]string{key: value})
		require.ErrorIs(t, err, ErrConfig, key)
		require.ErrorContains(t, err, `"`+key+`"`)
		require.NotContains(t, err.Error(), "password")
	}
}
