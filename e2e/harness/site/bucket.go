package site

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/gate"
	"github.com/holdfast-io/holdfast/e2e/harness/product"
	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// Bucket is a bucket that sites reach through a BackupStorageLocation, and the test directly.
type Bucket struct {
	Location string // name of the BackupStorageLocation
	keys     func(context.Context) ([]string, error)
	read     func(context.Context, string) ([]byte, error)
	uploads  func(context.Context) (int, error) // multipart uploads that were begun and not ended
}

// S3Bucket makes a bucket on an S3 server. Location names the BackupStorageLocation that sites will
// have for it, and the bucket.
func S3Bucket(t *testing.T, server *testbed.S3, location string) *Bucket {
	t.Helper()
	require.NoError(t, server.CreateBucket(t.Context(), location))
	name := aws.String(location)
	return &Bucket{
		Location: location,
		keys:     func(ctx context.Context) ([]string, error) { return server.Keys(ctx, location) },
		read: func(ctx context.Context, key string) (_ []byte, err error) {
			object, err := server.Client().GetObject(ctx, &s3.GetObjectInput{Bucket: name, Key: aws.String(key)})
			if err != nil {
				return nil, err
			}
			defer func() { err = errors.Join(err, object.Body.Close()) }()
			return io.ReadAll(object.Body)
		},
		uploads: func(ctx context.Context) (int, error) {
			out, err := server.Client().ListMultipartUploads(ctx, &s3.ListMultipartUploadsInput{Bucket: name})
			if err != nil {
				return 0, err
			}
			return len(out.Uploads), nil
		},
	}
}

// FileBucket makes a bucket of a directory.
func FileBucket(t *testing.T, location string) (bucket *Bucket, dir string) {
	t.Helper()
	dir = t.TempDir()
	root := filepath.Join(dir, location)
	require.NoError(t, os.Mkdir(root, 0o700))
	return &Bucket{
		Location: location,
		keys:     func(context.Context) ([]string, error) { return product.Files(root) },
		read:     func(_ context.Context, key string) ([]byte, error) { return os.ReadFile(filepath.Join(root, key)) },
		uploads:  func(context.Context) (int, error) { return 0, nil },
	}, dir
}

// ReachS3 gives the site a location for a bucket of the S3 server, behind a gate of the site's own,
// and waits until it is available.
func (s *Site) ReachS3(t *testing.T, server *testbed.S3, bucket *Bucket) *gate.Gate {
	t.Helper()
	g, err := gate.Start(server.Endpoint)
	require.NoError(t, err)
	t.Cleanup(g.Close)
	credentials := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: Server, Name: bucket.Location},
		StringData: map[string]string{"cloud": server.CredentialsFile()}}
	require.NoError(t, s.Client.Create(t.Context(), credentials))
	config := maps.Clone(server.LocationConfig())
	config["s3Url"] = g.URL
	s.addLocation(t, bucket, velerov1.BackupStorageLocationSpec{Provider: "aws", Config: config,
		Credential: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: credentials.Name}, Key: "cloud"}})
	return g
}

// ReachFiles gives the site a location for a bucket in a directory and waits until it is available.
func (s *Site) ReachFiles(t *testing.T, dir string, bucket *Bucket) {
	t.Helper()
	s.addLocation(t, bucket, velerov1.BackupStorageLocationSpec{Provider: holdfast.ProviderFile, Config: map[string]string{"path": dir}})
}

func (s *Site) addLocation(t *testing.T, bucket *Bucket, spec velerov1.BackupStorageLocationSpec) {
	t.Helper()
	spec.ObjectStorage = &velerov1.ObjectStorageLocation{Bucket: bucket.Location}
	location := &velerov1.BackupStorageLocation{ObjectMeta: metav1.ObjectMeta{Namespace: Server, Name: bucket.Location}, Spec: spec}
	require.NoError(t, s.Client.Create(t.Context(), location))
	require.Eventually(t, func() bool {
		return s.Client.Get(t.Context(), client.ObjectKeyFromObject(location), location) == nil &&
			location.Status.Phase == velerov1.LocationPhaseAvailable
	}, Patience, Look, "location %s gets available", bucket.Location)
}

// Keys lists the bucket.
func (b *Bucket) Keys(t *testing.T) []string {
	t.Helper()
	keys, err := b.keys(t.Context())
	require.NoError(t, err)
	return keys
}

// Read reads one object.
func (b *Bucket) Read(t *testing.T, key string) []byte {
	t.Helper()
	content, err := b.read(t.Context(), key)
	require.NoError(t, err, key)
	return content
}

// ReadZipped reads one gzip object.
func (b *Bucket) ReadZipped(t *testing.T, key string) []byte {
	t.Helper()
	zipped, err := gzip.NewReader(bytes.NewReader(b.Read(t, key)))
	require.NoError(t, err, key)
	content, err := io.ReadAll(zipped)
	require.NoError(t, err, key)
	return content
}

// Digests returns a digest of every object of the bucket, except those that go away meanwhile.
func (b *Bucket) Digests(t *testing.T) map[string]string {
	t.Helper()
	digests := map[string]string{}
	for _, key := range b.Keys(t) {
		content, err := b.read(t.Context(), key)
		if err != nil {
			require.NotContains(t, b.Keys(t), key, "%v", err) // swept
			continue
		}
		digests[key] = hashOf(content)
	}
	return digests
}

// Stored returns a digest of every file in a backup's tarball.
func (b *Bucket) Stored(t *testing.T, backup string) map[string]string {
	t.Helper()
	digests := map[string]string{}
	b.EachStored(t, backup, func(path string, content []byte) { digests[path] = hashOf(content) })
	return digests
}

// EachStored calls fn for every file in a backup's tarball. A path that comes twice fails the test,
// unless the backup had operations, after which items are stored again: the later one counts.
func (b *Bucket) EachStored(t *testing.T, backup string, fn func(path string, content []byte)) {
	t.Helper()
	seen := map[string]bool{}
	files := tar.NewReader(bytes.NewReader(b.ReadZipped(t, "backups/"+backup+"/"+backup+".tar.gz")))
	for {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(t, err)
		if seen[header.Name] {
			require.NotEqual(t, "[]\n", string(b.ReadZipped(t, "backups/"+backup+"/"+backup+"-itemoperations.json.gz")),
				"%s is in the tarball of %s twice", header.Name, backup)
		}
		seen[header.Name] = true
		content, err := io.ReadAll(files)
		require.NoError(t, err)
		fn(header.Name, content)
	}
}

// Settles waits until the bucket holds exactly these keys of backups and restores, and no
// unfinished upload.
func (b *Bucket) Settles(t *testing.T, want []string) {
	t.Helper()
	var more, less []string
	uploads := 0
	tidy := func() bool {
		keys, err := b.keys(t.Context())
		if err != nil {
			return false
		}
		if uploads, err = b.uploads(t.Context()); err != nil {
			return false
		}
		keys = slices.DeleteFunc(keys, func(key string) bool {
			return !strings.HasPrefix(key, "backups/") && !strings.HasPrefix(key, "restores/")
		})
		more, less = namesWithout(keys, want), namesWithout(want, keys)
		return len(more)+len(less)+uploads == 0
	}
	if !awaitCondition(t, tidy) {
		require.Failf(t, "the bucket does not settle", "left: %v\nmissing: %v\nunfinished uploads: %d", more, less, uploads)
	}
}

func namesWithout(all, some []string) []string {
	known := map[string]bool{}
	for _, key := range some {
		known[key] = true
	}
	var left []string
	for _, key := range all {
		if !known[key] {
			left = append(left, key)
		}
	}
	return left
}

func hashOf(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}
