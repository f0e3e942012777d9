package location

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost"
	"github.com/holdfast-io/holdfast/pkg/objectstore/pluginstore"
)

// byPlugin is the value of the annotation that has a plugin serve a provider that Holdfast serves
// itself.
const byPlugin = "plugin"

// plugins are what an Opener serves locations of other providers with.
type plugins struct {
	host    *pluginhost.Host
	log     *slog.Logger
	workDir string
	locks   pluginstore.Locks
}

// WithPlugins has the Opener serve locations of other providers with the service's plugins. Each
// store that it opens has a process of its own, which starts at the first call and ends when the
// store is closed. What plugins log goes to log, with the location's name. In workDir lie
// credentials for the plugin until the store is closed, and copies of objects that are read by
// ranges.
func WithPlugins(host *pluginhost.Host, log *slog.Logger, workDir string) Option {
	return func(o *Opener) { o.plugins = &plugins{host: host, log: log, workDir: workDir} }
}

// openPlugin opens the bucket through the plugin that has the provider's name. The plugin is asked
// nothing yet.
func (o *Opener) openPlugin(ctx context.Context, loc *velerov1.BackupStorageLocation, p bucketPlace) (*pluginstore.Store, error) {
	name := Provider(loc)
	if o.plugins == nil || len(o.plugins.host.Plugins()) == 0 {
		return nil, errgrpc.Field("spec.provider", "%q needs an object store plugin of that name, and there are no plugins: "+
			"put its binary into --plugin-dir of every service and start them again", name)
	}
	config, forget, err := o.pluginConfig(ctx, loc, p)
	if err != nil {
		return nil, err
	}
	// Not the caller's context, which may end with the opening: calls have their own.
	session := o.plugins.host.Open(context.WithoutCancel(ctx), o.plugins.log.With("location", loc.Name))
	end := func() error {
		session.Close()
		return forget()
	}
	plugin, err := session.ObjectStore(name, config)
	if errors.Is(err, pluginhost.ErrUnknown) {
		err = errgrpc.Field("spec.provider", "%q needs an object store plugin of that name, and none of the installed ones is: "+
			"put its binary into --plugin-dir of every service and start them again", name)
	}
	if err != nil {
		return nil, errors.Join(err, end())
	}
	return pluginstore.New(pluginstore.Config{
		Plugin: plugin, Bucket: p.bucket, Dir: o.plugins.workDir, Locks: &o.plugins.locks, End: end,
	}), nil
}

// pluginConfig returns what a plugin is initialised with: the location's own config and what Velero
// adds, nothing else, because plugins refuse keys they do not know. forget removes what it put on
// the disk.
func (o *Opener) pluginConfig(ctx context.Context, loc *velerov1.BackupStorageLocation, p bucketPlace) (config map[string]string, forget func() error, err error) {
	config = maps.Clone(loc.Spec.Config)
	if config == nil {
		config = map[string]string{}
	}
	config["bucket"], config["prefix"] = p.bucket, strings.TrimSuffix(p.prefix, "/")
	bundle, err := o.caBundle(ctx, loc.Spec.ObjectStorage)
	if err != nil {
		return nil, nil, err
	}
	if len(bundle) > 0 {
		config["caCert"] = string(bundle)
	}
	forget = func() error { return nil }
	secret, err := o.credentialText(ctx, loc.Spec.Credential)
	if secret == nil || err != nil {
		return config, forget, err
	}
	dir, err := os.MkdirTemp(o.plugins.workDir, "credentials-") // readable for this user only
	if err != nil {
		return nil, nil, fmt.Errorf("spec.credential: %w", err)
	}
	forget = func() error { return os.RemoveAll(dir) }
	file := filepath.Join(dir, "credentials") // not the Secret's name: what may be in a key is no business of a path
	if err := os.WriteFile(file, secret, 0o600); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("spec.credential: %w", err), forget())
	}
	if loc.Spec.Credential == nil {
		config[pluginhost.InstalledCredentials] = file
	} else {
		config["credentialsFile"] = file
	}
	return config, forget, nil
}
