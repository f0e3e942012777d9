package plugin

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Kind is what a plugin is for.
type Kind string

// The kinds. The names of the first six are those of Velero's interfaces.
const (
	KindBackupItemAction       Kind = "BackupItemAction"
	KindRestoreItemAction      Kind = "RestoreItemAction"
	KindDeleteItemAction       Kind = "DeleteItemAction"
	KindItemBlockAction        Kind = "ItemBlockAction"
	KindObjectStore            Kind = "ObjectStore"
	KindVolumeSnapshotter      Kind = "VolumeSnapshotter"
	KindAsyncBackupItemAction  Kind = "AsyncBackupItemAction"
	KindAsyncRestoreItemAction Kind = "AsyncRestoreItemAction"
)

// Env is what a plugin gets when it is made.
type Env struct {
	// Name it was registered with.
	Name string
	// Log ends up in the server's log, and in the log of the backup or restore.
	Log *slog.Logger
	// Features are the server's feature flags, for example "EnableCSI".
	Features []string
}

// Registration is one plugin of a Registry.
type Registration struct {
	// Kind of the plugin.
	Kind Kind
	// Name of the plugin.
	Name string
	// Touches are the resources that an action may be called for.
	Touches []string
	// OutOfProcess is set for an asynchronous action whose operations all live outside the process.
	OutOfProcess bool
	// New makes the plugin; what it returns implements the interface named by Kind.
	New func(Env) (any, error)
}

// Registry holds the plugins of a process. Its methods register; what is wrong with a registration
// is told by Plugins. Constructors run when a plugin is first called, and again if they failed.
type Registry struct {
	all  []Registration
	errs []error
}

// BackupItemAction registers an action under a name such as "example.io/quiesce", and the resources
// it may be called for: "pods", "deployments.apps", or "*" alone for any.
func (r *Registry) BackupItemAction(name string, touches []string, build func(Env) (BackupItemAction, error)) *Registry {
	return r.addRegistration(Registration{Kind: KindBackupItemAction, Name: name, Touches: touches, New: eraseType(build)})
}

// RestoreItemAction registers an action, see BackupItemAction.
func (r *Registry) RestoreItemAction(name string, touches []string, build func(Env) (RestoreItemAction, error)) *Registry {
	return r.addRegistration(Registration{Kind: KindRestoreItemAction, Name: name, Touches: touches, New: eraseType(build)})
}

// DeleteItemAction registers an action, see BackupItemAction.
func (r *Registry) DeleteItemAction(name string, touches []string, build func(Env) (DeleteItemAction, error)) *Registry {
	return r.addRegistration(Registration{Kind: KindDeleteItemAction, Name: name, Touches: touches, New: eraseType(build)})
}

// ItemBlockAction registers an action, see BackupItemAction.
func (r *Registry) ItemBlockAction(name string, touches []string, build func(Env) (ItemBlockAction, error)) *Registry {
	return r.addRegistration(Registration{Kind: KindItemBlockAction, Name: name, Touches: touches, New: eraseType(build)})
}

// ObjectStore registers the provider of backup storage locations. A provider "x" in a location
// means "velero.io/x".
func (r *Registry) ObjectStore(name string, build func(Env) (ObjectStore, error)) *Registry {
	return r.addRegistration(Registration{Kind: KindObjectStore, Name: name, New: eraseType(build)})
}

// VolumeSnapshotter registers the provider of volume snapshot locations, named as for ObjectStore.
func (r *Registry) VolumeSnapshotter(name string, build func(Env) (VolumeSnapshotter, error)) *Registry {
	return r.addRegistration(Registration{Kind: KindVolumeSnapshotter, Name: name, New: eraseType(build)})
}

// AsyncBackupItemAction registers an action, see BackupItemAction. Only Holdfast calls it, unless
// it is OutOfProcess.
func (r *Registry) AsyncBackupItemAction(name string, touches []string, build func(Env) (AsyncBackupItemAction, error), options ...AsyncOption) *Registry {
	return r.addRegistration(applyOptions(Registration{Kind: KindAsyncBackupItemAction, Name: name, Touches: touches, New: eraseType(build)}, options))
}

// AsyncRestoreItemAction registers an action, see BackupItemAction. Only Holdfast calls it, unless
// it is OutOfProcess.
func (r *Registry) AsyncRestoreItemAction(name string, touches []string, build func(Env) (AsyncRestoreItemAction, error), options ...AsyncOption) *Registry {
	return r.addRegistration(applyOptions(Registration{Kind: KindAsyncRestoreItemAction, Name: name, Touches: touches, New: eraseType(build)}, options))
}

// AsyncOption is an option of an asynchronous action.
type AsyncOption func(*Registration)

// OutOfProcess means that no operation of the action lives in its process: any process of the
// binary can tell how one goes. Velero too calls such an action, as its item action of version 2. A
// Start that answers InProcess fails.
func OutOfProcess() AsyncOption { return func(r *Registration) { r.OutOfProcess = true } }

// Plugins returns everything that was registered, ordered by kind and name, or what is wrong with
// it.
func (r *Registry) Plugins() ([]Registration, error) {
	if len(r.errs) > 0 {
		return nil, errors.Join(r.errs...)
	}
	if len(r.all) == 0 {
		return nil, errors.New("no plugin is registered")
	}
	sorted := slices.Clone(r.all)
	slices.SortFunc(sorted, func(a, b Registration) int {
		if c := strings.Compare(string(a.Kind), string(b.Kind)); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
	return sorted, nil
}

func (r *Registry) addRegistration(p Registration) *Registry {
	if err := r.checkRegistration(p); err != nil {
		r.errs = append(r.errs, fmt.Errorf("register %s %q: %w", p.Kind, p.Name, err))
		return r
	}
	r.all = append(r.all, p)
	return r
}

func (r *Registry) checkRegistration(p Registration) error {
	domain, rest, _ := strings.Cut(p.Name, "/")
	if len(validation.IsDNS1123Subdomain(domain)) > 0 || rest == "" || strings.Contains(rest, "/") {
		return errors.New(`name: want a DNS subdomain, "/" and a name`)
	}
	if slices.ContainsFunc(r.all, func(o Registration) bool { return o.Kind == p.Kind && o.Name == p.Name }) {
		return errors.New("name: registered twice")
	}
	if slices.ContainsFunc(r.all, func(o Registration) bool { return o.Name == p.Name && (areTwins(o, p) || areTwins(p, o)) }) {
		return errors.New("name: Velero would call two actions by it")
	}
	if p.New == nil {
		return errors.New("constructor: missing")
	}
	if p.Kind == KindObjectStore || p.Kind == KindVolumeSnapshotter {
		return nil
	}
	if len(p.Touches) == 0 {
		return errors.New(`touches: name the resources it may be called for, or "*"`)
	}
	for _, resource := range p.Touches {
		if resource == "*" && len(p.Touches) == 1 {
			continue
		}
		if len(validation.IsDNS1123Subdomain(resource)) > 0 {
			return fmt.Errorf(`touches: %q: want a resource as "pods" or "deployments.apps", or "*" alone`, resource)
		}
	}
	return nil
}

// areTwins reports whether Velero knows both plugins as item actions of the same kind of job.
func areTwins(async, sync Registration) bool {
	return async.OutOfProcess && (async.Kind == KindAsyncBackupItemAction && sync.Kind == KindBackupItemAction ||
		async.Kind == KindAsyncRestoreItemAction && sync.Kind == KindRestoreItemAction)
}

func eraseType[T any](build func(Env) (T, error)) func(Env) (any, error) {
	if build == nil {
		return nil
	}
	return func(env Env) (any, error) { return build(env) }
}

func applyOptions(p Registration, options []AsyncOption) Registration {
	for _, option := range options {
		option(&p)
	}
	return p
}
