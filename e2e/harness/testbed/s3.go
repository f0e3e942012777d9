package testbed

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// S3 is a running S3 server (versitygw with a directory behind it). Its methods are safe for
// concurrent use.
type S3 struct {
	Endpoint  string // URL, plain HTTP
	Region    string
	AccessKey string
	SecretKey string

	dir     string
	process *Process
}

// StartS3 starts an S3 server on loopback whose data and log live in dir, and returns when it
// answers. The caller calls Stop.
func StartS3(ctx context.Context, dir string) (*S3, error) { return StartS3At(ctx, dir, loopback) }

// StartS3At is StartS3 on another address of this host.
func StartS3At(ctx context.Context, dir, address string) (*S3, error) {
	binary, err := Binary("versitygw")
	if err != nil {
		return nil, err
	}
	for try := 1; ; try++ {
		server, err := startS3Once(ctx, binary, dir, address)
		if err == nil || ctx.Err() != nil || try == startTries || !errors.Is(err, errEndedEarly) {
			return server, err
		}
	}
}

func startS3Once(ctx context.Context, binary, dir, host string) (*S3, error) {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	data, sidecar := filepath.Join(dir, "data"), filepath.Join(dir, "attributes")
	for _, path := range []string{data, sidecar} {
		if err := os.MkdirAll(path, 0o700); err != nil {
			return nil, err
		}
	}
	ports, err := FreePorts(1)
	if err != nil {
		return nil, err
	}
	address := fmt.Sprintf("%s:%d", host, ports[0])
	server := &S3{Endpoint: "http://" + address, Region: "us-east-1", AccessKey: "testbed", SecretKey: randomHex(), dir: data}
	server.process, err = StartProcess(ProcessSpec{
		Name: "s3", Path: binary, LogDir: dir,
		Args: append([]string{"--port", address, "--region", server.Region, "--quiet", "posix"}, storageArgs(data, sidecar)...),
		Env:  []string{"ROOT_ACCESS_KEY_ID=" + server.AccessKey, "ROOT_SECRET_ACCESS_KEY=" + server.SecretKey},
	})
	if err != nil {
		return nil, err
	}
	if err := waitFor(ctx, server.process, server.checkReady); err != nil {
		server.Stop()
		return nil, err
	}
	return server, nil
}

// storageArgs returns the arguments for where the server keeps objects and their attributes: in
// extended attributes where the file system has them, else in files. An attribute file gets lost
// when the neighbour's, the last one in the same directory, is deleted at that moment: the object
// exists then and is not found.
func storageArgs(data, sidecar string) []string {
	if extendedAttributes(data) {
		return []string{data}
	}
	return []string{"--sidecar", sidecar, data}
}

func (s *S3) checkReady(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.Endpoint+"/", http.NoBody)
	if err != nil {
		return err
	}
	response, err := probeClient.Do(request)
	if err != nil {
		return err
	}
	return response.Body.Close() // any answer will do: unsigned requests are refused
}

// Client returns a client of the server with path-style addressing.
func (s *S3) Client() *s3.Client {
	return s3.New(s3.Options{
		BaseEndpoint: aws.String(s.Endpoint), Region: s.Region, UsePathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider(s.AccessKey, s.SecretKey, ""),
	})
}

// CreateBucket creates a bucket.
func (s *S3) CreateBucket(ctx context.Context, name string) error {
	if _, err := s.Client().CreateBucket(ctx, &s3.CreateBucketInput{Bucket: aws.String(name)}); err != nil {
		return fmt.Errorf("create bucket %s: %w", name, err)
	}
	return nil
}

// CredentialsFile returns the keys in the format of an AWS shared credentials file, as a Secret of
// a BackupStorageLocation holds it.
func (s *S3) CredentialsFile() string {
	return fmt.Sprintf("[default]\naws_access_key_id=%s\naws_secret_access_key=%s\n", s.AccessKey, s.SecretKey)
}

// LocationConfig returns the spec.config of a BackupStorageLocation with provider aws that reaches
// this server.
func (s *S3) LocationConfig() map[string]string {
	return map[string]string{"region": s.Region, "s3Url": s.Endpoint, "s3ForcePathStyle": "true"}
}

// Keys lists every key of a bucket.
func (s *S3) Keys(ctx context.Context, bucket string) ([]string, error) {
	var keys []string
	pages := s3.NewListObjectsV2Paginator(s.Client(), &s3.ListObjectsV2Input{Bucket: aws.String(bucket)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("list bucket %s: %w", bucket, err)
		}
		for _, object := range page.Contents {
			keys = append(keys, aws.ToString(object.Key))
		}
	}
	return keys, nil
}

// Stop stops the server and returns when it is gone.
func (s *S3) Stop() { s.process.Stop(3 * time.Second) }

func randomHex() string {
	var random [16]byte
	_, _ = rand.Read(random[:]) // documented never to fail
	return hex.EncodeToString(random[:])
}
