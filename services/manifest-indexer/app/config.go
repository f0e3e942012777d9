package app

import (
	"errors"
	"net"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/pflag"

	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost"
	"github.com/holdfast-io/holdfast/pkg/kube/leaderelection"
	"github.com/holdfast-io/holdfast/pkg/service"
)

// Name is the service's name.
const Name = "manifest-indexer"

// Ports are the service's default ports. That of HTTP is not 8445 as its number suggests: artifacts
// have it.
func Ports() service.Ports { return service.Ports{GRPC: 7445, HTTP: 8447} }

// ArtifactPort is the default port of artifacts.
const ArtifactPort = 8445

// Config is the service's configuration; BindFlags states the defaults, Velero 1.18's where it has the
// flag.
type Config struct {
	service.Base
	// ArtifactAddress is the host:port that artifacts are served on; port 0 picks a free one. With
	// Options.TLSCertFile they are served over TLS, without it on loopback only.
	ArtifactAddress string
	// ArtifactURL is the URL under which clients reach ArtifactAddress; empty means the address
	// itself.
	ArtifactURL string
	// BackupSyncPeriod is how often a location is searched for backups; 0 or negative means never.
	BackupSyncPeriod time.Duration
	// ValidationFrequency is how often a location is validated; 0 or negative means once.
	ValidationFrequency time.Duration
	// DefaultLocation is made the default, if it exists, when it is another one than before.
	DefaultLocation string
	// VerifyPeriod is how often the newest backup of each schedule is verified; 0 or negative means
	// never.
	VerifyPeriod time.Duration
	// DutyTimeout is how long another instance must be silent before its duties are taken over.
	DutyTimeout time.Duration
	// Plugins bounds what object store plugins may cost.
	Plugins pluginhost.Flags
}

// BindFlags adds the service's own flags.
func (c *Config) BindFlags(fs *pflag.FlagSet) {
	fs.StringVar(&c.ArtifactAddress, "artifact-address", net.JoinHostPort("127.0.0.1", strconv.Itoa(ArtifactPort)), "host:port to serve artifacts on; beyond loopback it needs --tls-cert-file")
	fs.StringVar(&c.ArtifactURL, "artifact-url", "", "URL under which clients reach --artifact-address; that address when empty")
	fs.DurationVar(&c.BackupSyncPeriod, "backup-sync-period", time.Minute, "how often locations are searched for backups; 0 or negative means never")
	fs.DurationVar(&c.ValidationFrequency, "store-validation-frequency", time.Minute, "how often locations are validated; 0 or negative means once")
	fs.DurationVar(&c.VerifyPeriod, "verify-schedules-every", 0, "how often the newest backup of each schedule is read and compared with its manifest, such as 24h; 0 or negative means never")
	fs.StringVar(&c.DefaultLocation, "default-backup-storage-location", "default", "location that is made the default, if it exists, when this name is another one than before")
	c.Plugins.BindFlags(fs)
	fs.DurationVar(&c.DutyTimeout, "duty-timeout", leaderelection.DefaultTimeout, "how long another instance must be silent before its duties are taken over")
}

// validate checks the settings of this service; errors name the flag.
func (c *Config) validate() error {
	return errors.Join(
		service.CheckDurations(service.Duration{Flag: "duty-timeout", Value: c.DutyTimeout, Least: time.Second}),
		c.Plugins.Validate(), c.validateURL(),
	)
}

func (c *Config) validateURL() error {
	if c.ArtifactURL == "" {
		return nil
	}
	u, err := url.Parse(c.ArtifactURL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return errgrpc.Field("--artifact-url", "is not an http or https URL") // not shown: it may hold a password
	}
	if u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return errgrpc.Field("--artifact-url", "must not hold credentials, a query or a fragment")
	}
	return nil
}
