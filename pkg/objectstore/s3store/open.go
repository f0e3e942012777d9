package s3store

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// attempts is how often the SDK tries a request, with exponential back-off in between.
const attempts = 5

// fallbackRegion signs requests where nothing else is known; servers other than AWS accept it.
const fallbackRegion = "us-east-1"

// Open prepares access to the bucket; it talks to the server only to find out the region when none
// is configured and the server is AWS. Whether the bucket exists shows on first use.
func Open(ctx context.Context, c Config) (*Store, error) {
	if c.Bucket == "" {
		return nil, fmt.Errorf("%w: no bucket", ErrConfig)
	}
	s := &Store{config: c}
	base, err := loadAWSConfig(ctx, &c)
	if err != nil {
		return nil, err
	}
	if s.transport, err = newTransport(base.HTTPClient, c); err != nil {
		return nil, err
	}
	base.HTTPClient = &http.Client{Transport: s.transport}
	if err := s.connectClient(ctx, base); err != nil {
		s.transport.CloseIdleConnections()
		return nil, err
	}
	return s, nil
}

// emptiedDirectory is the code of a 409 of S3 servers on a file system (versitygw), also of a
// create that meets the removal of the directory that the last object beside it leaves empty: the
// next attempt succeeds.
const emptiedDirectory = "ExistingObjectIsDirectory"

// loadAWSConfig reads credentials and settings as the SDK does.
func loadAWSConfig(ctx context.Context, c *Config) (aws.Config, error) {
	options := []func(*awsconfig.LoadOptions) error{
		awsconfig.WithRetryer(func() aws.Retryer {
			standard := retry.NewStandard(func(o *retry.StandardOptions) { o.MaxAttempts = attempts })
			return retry.AddWithErrorCodes(standard, emptiedDirectory)
		}),
	}
	if c.Credentials != nil {
		options = append(options, awsconfig.WithCredentialsProvider(aws.NewCredentialsCache(c.Credentials)))
	} else if c.Profile != "" {
		options = append(options, awsconfig.WithSharedConfigProfile(c.Profile))
	}
	base, err := awsconfig.LoadDefaultConfig(ctx, options...)
	if err != nil {
		return aws.Config{}, fmt.Errorf("load credentials and configuration: %w", err)
	}
	return base, nil
}

func (s *Store) connectClient(ctx context.Context, base aws.Config) error {
	region := s.config.Region
	if region == "" && s.config.Endpoint == "" {
		var err error
		if region, err = bucketRegion(ctx, base, s.config.Bucket); err != nil {
			return err
		}
	}
	if region == "" {
		region = fallbackRegion
	}
	base.Region = region
	options := func(endpoint string) func(*s3.Options) {
		return func(o *s3.Options) {
			o.UsePathStyle = s.config.PathStyle
			o.DisableLogOutputChecksumValidationSkipped = true
			if endpoint != "" {
				o.BaseEndpoint = &endpoint
			}
			if s.config.Checksum == "" {
				o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
				o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
			}
		}
	}
	s.client = s3.NewFromConfig(base, options(s.config.Endpoint))
	public := s.config.PublicURL
	if public == "" {
		public = s.config.Endpoint
	}
	s.presign = s3.NewPresignClient(s3.NewFromConfig(base, options(public), func(o *s3.Options) {
		o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired // a plain GET must do
	}))
	return nil
}

// bucketRegion asks AWS without credentials: every answer names the region in a header, refusals
// too.
func bucketRegion(ctx context.Context, base aws.Config, bucket string) (string, error) {
	const header = "X-Amz-Bucket-Region"
	base.Region = fallbackRegion
	client := s3.NewFromConfig(base, func(o *s3.Options) { o.Credentials = aws.AnonymousCredentials{} })
	out, err := client.HeadBucket(ctx, &s3.HeadBucketInput{Bucket: &bucket})
	if err == nil {
		return aws.ToString(out.BucketRegion), nil
	}
	var resp *smithyhttp.ResponseError
	if errors.As(err, &resp) {
		if region := resp.Response.Header.Get(header); region != "" {
			return region, nil
		}
	}
	return "", fmt.Errorf("find the region of bucket %s (config key region is not set): %w", bucket, opError("head", bucket, err))
}

// newTransport starts from the SDK's client, which reads AWS_CA_BUNDLE, and adds the settings of
// the location's config.
func newTransport(from aws.HTTPClient, c Config) (*http.Transport, error) {
	sdk, ok := from.(*awshttp.BuildableClient)
	if !ok {
		sdk = awshttp.NewBuildableClient()
	}
	t := sdk.GetTransport()
	t.MaxIdleConnsPerHost = 64
	if t.TLSClientConfig == nil {
		t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	t.TLSClientConfig.InsecureSkipVerify = c.InsecureSkipTLSVerify
	if len(c.CABundle) == 0 {
		return t, nil
	}
	pool := t.TLSClientConfig.RootCAs
	if pool == nil {
		var err error
		if pool, err = x509.SystemCertPool(); err != nil {
			return nil, fmt.Errorf("system certificates: %w", err)
		}
	}
	if pool = pool.Clone(); !pool.AppendCertsFromPEM(c.CABundle) {
		return nil, fmt.Errorf("%w: caCert holds no PEM certificate", ErrConfig)
	}
	t.TLSClientConfig.RootCAs = pool
	return t, nil
}
