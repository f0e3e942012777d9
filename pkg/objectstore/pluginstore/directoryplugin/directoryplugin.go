// Package directoryplugin is an ObjectStore plugin for tests, made with the SDK: its buckets are
// directories. The test binary is the plugin's binary too.
package directoryplugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost"
	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost/selfplugin"
	"github.com/holdfast-io/holdfast/pkg/plugin"
	"github.com/holdfast-io/holdfast/pkg/plugin/serve"
)

// Name is what the plugin registers, and a location states as its provider.
const Name = "test.holdfast.io/directory"

// Keys of the configuration.
const (
	// ConfigDir is the directory that buckets are directories of. They must exist.
	ConfigDir = "dir"
	// ConfigFault makes calls of one method misbehave: "exit GetObject", or hang, panic or refuse.
	ConfigFault = "fault"
	// ConfigPublicURL is what signed URLs begin with; without it there are none.
	ConfigPublicURL = "publicUrl"
)

// Serve serves the plugin and returns true if the process was started as one. TestMain calls it
// first.
func Serve() (bool, error) {
	if os.Getenv("VELERO_PLUGIN") == "" {
		return false, nil
	}
	return true, serve.Run((&plugin.Registry{}).ObjectStore(Name, func(plugin.Env) (plugin.ObjectStore, error) { return &directory{}, nil }))
}

// Host returns a host of the plugin.
func Host(t testing.TB, limits pluginhost.Limits) *pluginhost.Host {
	t.Helper()
	h, err := pluginhost.New(t.Context(), pluginhost.Config{
		Dir: selfplugin.Directory(t, "directory-plugin"), Namespace: "velero", LogLevel: "error", Environ: os.Environ(),
		Log: slog.New(slog.DiscardHandler), Clock: clock.RealClock{}, Limits: limits,
	})
	require.NoError(t, err)
	require.Empty(t, h.Failures())
	return h
}

// directory is the plugin.
type directory struct{ config map[string]string }

// Init notes the configuration.
func (d *directory) Init(_ context.Context, config map[string]string) error {
	if config["refused"] != "" {
		return errors.New("refused: unknown key")
	}
	if file := config["credentialsFile"]; file != "" {
		if _, err := os.ReadFile(file); err != nil {
			return err
		}
	}
	d.config = config
	return nil
}

// bucketDir returns the bucket's directory for one call of a method.
func (d *directory) bucketDir(ctx context.Context, method, name string) (string, error) {
	fault, of, _ := strings.Cut(d.config[ConfigFault], " ")
	if of == method {
		switch fault {
		case "hang":
			<-ctx.Done()
			select {} // even then
		case "exit":
			os.Exit(1) //nolint:forbidigo // the plugin's process, and that it dies is the point
		case "panic":
			panic("on purpose") //nolint:forbidigo // the plugin's process, and that it panics is the point
		case "refuse":
			return "", errors.New(method + " refused")
		}
	}
	dir := filepath.Join(d.config[ConfigDir], name)
	if _, err := os.Stat(dir); err != nil {
		return "", fmt.Errorf("bucket %s: %w", name, err)
	}
	return dir, nil
}

// PutObject gives the file its name when the body has come whole.
func (d *directory) PutObject(ctx context.Context, bucket, key string, body io.Reader) error {
	dir, err := d.bucketDir(ctx, "PutObject", bucket)
	if err != nil {
		return err
	}
	file, err := os.CreateTemp(d.config[ConfigDir], "unfinished-")
	if err != nil {
		return err
	}
	_, err = io.Copy(file, body)
	err = errors.Join(err, file.Close())
	path := filepath.Join(dir, filepath.FromSlash(key))
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o700)
	}
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	return nil
}

// ObjectExists looks for the file.
func (d *directory) ObjectExists(ctx context.Context, bucket, key string) (bool, error) {
	dir, err := d.bucketDir(ctx, "ObjectExists", bucket)
	if err != nil {
		return false, err
	}
	info, err := os.Stat(filepath.Join(dir, filepath.FromSlash(key)))
	return err == nil && info.Mode().IsRegular(), nil
}

// GetObject opens the file.
func (d *directory) GetObject(ctx context.Context, bucket, key string) (io.ReadCloser, error) {
	dir, err := d.bucketDir(ctx, "GetObject", bucket)
	if err != nil {
		return nil, err
	}
	return os.Open(filepath.Join(dir, filepath.FromSlash(key)))
}

// listKeys lists a bucket backwards, because no order is promised.
func listKeys(dir, prefix string) ([]string, error) {
	var found []string
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		relative, err := filepath.Rel(dir, path)
		if key := filepath.ToSlash(relative); strings.HasPrefix(key, prefix) {
			found = append(found, key)
		}
		return err
	})
	slices.Reverse(found)
	return found, err
}

// ListCommonPrefixes lists what has the delimiter.
func (d *directory) ListCommonPrefixes(ctx context.Context, bucket, delimiter, prefix string) ([]string, error) {
	dir, err := d.bucketDir(ctx, "ListCommonPrefixes", bucket)
	if err != nil {
		return nil, err
	}
	all, err := listKeys(dir, prefix)
	var prefixes []string
	for _, key := range all {
		name, _, ok := strings.Cut(strings.TrimPrefix(key, prefix), delimiter)
		if ok && !slices.Contains(prefixes, prefix+name+delimiter) {
			prefixes = append(prefixes, prefix+name+delimiter)
		}
	}
	return prefixes, err
}

// ListObjects lists everything.
func (d *directory) ListObjects(ctx context.Context, bucket, prefix string) ([]string, error) {
	dir, err := d.bucketDir(ctx, "ListObjects", bucket)
	if err != nil {
		return nil, err
	}
	return listKeys(dir, prefix)
}

// DeleteObject fails for an object that is not there, as some plugins do.
func (d *directory) DeleteObject(ctx context.Context, bucket, key string) error {
	dir, err := d.bucketDir(ctx, "DeleteObject", bucket)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, filepath.FromSlash(key))
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return errors.New("delete: no such object")
	}
	return os.Remove(path)
}

// CreateSignedURL names the object and the time.
func (d *directory) CreateSignedURL(ctx context.Context, bucket, key string, ttl time.Duration) (string, error) {
	if _, err := d.bucketDir(ctx, "CreateSignedURL", bucket); err != nil {
		return "", err
	}
	base := d.config[ConfigPublicURL]
	if base == "" {
		return "", nil
	}
	return fmt.Sprintf("%s/%s/%s?ttl=%s", base, bucket, key, ttl), nil
}
