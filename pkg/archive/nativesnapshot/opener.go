package nativesnapshot

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost"
)

// NoPluginError means that no installed plugin serves a location.
type NoPluginError struct{ Provider string }

// Error names the field of the location and what to do.
func (e *NoPluginError) Error() string {
	return fmt.Sprintf("spec.provider: %q needs a volume snapshotter plugin of that name, and none of the installed ones is: "+
		"put its binary into --plugin-dir of every service and start them again", e.Provider)
}

// Session is one job's use of plugins; pluginhost.Session is one.
type Session interface {
	// VolumeSnapshotter returns the provider with this configuration; pluginhost.ErrUnknown when
	// there is none.
	VolumeSnapshotter(provider string, config map[string]string) (action.VolumeSnapshotter, error)
}

// Opener opens VolumeSnapshotLocations for one job. Safe for concurrent use.
type Opener struct {
	// Reader reads locations and Secrets, each once; Patient makes one that an outage does not
	// fail.
	Reader    client.Reader
	Namespace string
	Session   Session
	// WorkDir is where credentials lie for the plugins until Close.
	WorkDir string

	mu       sync.Mutex
	open     map[string]action.VolumeSnapshotter
	unserved map[string]error
	dirs     []string
}

// Open returns the snapshotter of a location, the same one each time. Its process starts at the
// first call. Errors name the location and the field; the next call tries again, but for a
// *NoPluginError.
func (o *Opener) Open(ctx context.Context, location string) (action.VolumeSnapshotter, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if s, known := o.open[location]; known {
		return s, nil
	}
	if err, known := o.unserved[location]; known {
		return nil, err
	}
	s, err := o.openNew(ctx, location)
	if err != nil {
		err = fmt.Errorf("VolumeSnapshotLocation %q: %w", location, err)
		if missing := new(NoPluginError); errors.As(err, &missing) {
			if o.unserved == nil {
				o.unserved = map[string]error{}
			}
			o.unserved[location] = err
		}
		return nil, err
	}
	if o.open == nil {
		o.open = map[string]action.VolumeSnapshotter{}
	}
	o.open[location] = s
	return s, nil
}

// Close removes the credentials. The session's end, which is the caller's, ends the plugins.
func (o *Opener) Close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	var errs []error
	for _, dir := range o.dirs {
		errs = append(errs, os.RemoveAll(dir))
	}
	o.dirs = nil
	return errors.Join(errs...)
}

func (o *Opener) openNew(ctx context.Context, name string) (action.VolumeSnapshotter, error) {
	loc := &velerov1.VolumeSnapshotLocation{}
	if err := o.Reader.Get(ctx, client.ObjectKey{Namespace: o.Namespace, Name: name}, loc); err != nil {
		return nil, err
	}
	config := maps.Clone(loc.Spec.Config)
	if config == nil {
		config = map[string]string{}
	}
	ref, key := loc.Spec.Credential, "credentialsFile" // Velero's key for it
	if ref == nil {
		ref, key = velerov1.InstalledCredential(), pluginhost.InstalledCredentials
	}
	file, err := o.writeCredentials(ctx, ref)
	if err != nil {
		return nil, err
	}
	if file != "" {
		config[key] = file
	}
	s, err := o.Session.VolumeSnapshotter(loc.Spec.Provider, config)
	if errors.Is(err, pluginhost.ErrUnknown) {
		return nil, &NoPluginError{Provider: loc.Spec.Provider}
	}
	return s, err
}

// writeCredentials puts a Secret's value into a file; there is none when the value is missing and
// optional.
func (o *Opener) writeCredentials(ctx context.Context, ref *corev1.SecretKeySelector) (string, error) {
	optional := ptr.Deref(ref.Optional, false)
	secret := &corev1.Secret{}
	err := o.Reader.Get(ctx, client.ObjectKey{Namespace: o.Namespace, Name: ref.Name}, secret)
	if apierrors.IsNotFound(err) && optional {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("spec.credential: %w", err)
	}
	value, ok := secret.Data[ref.Key]
	if !ok && optional {
		return "", nil
	}
	if !ok {
		return "", errgrpc.Field("spec.credential.key", "Secret %q has no key %q", ref.Name, ref.Key)
	}
	dir, err := os.MkdirTemp(o.WorkDir, "credentials-") // readable for this user only
	if err != nil {
		return "", fmt.Errorf("spec.credential: %w", err)
	}
	o.dirs = append(o.dirs, dir)
	file := filepath.Join(dir, "credentials")
	if err := os.WriteFile(file, value, 0o600); err != nil {
		return "", fmt.Errorf("spec.credential: %w", err)
	}
	return file, nil
}
