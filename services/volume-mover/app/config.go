package app

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/kube/leaderelection"
	"github.com/holdfast-io/holdfast/pkg/service"
)

// Name is the service's name.
const Name = "volume-mover"

// Ports are the service's default ports.
func Ports() service.Ports { return service.Ports{GRPC: 7447, HTTP: 8448} }

// Values of Config.VolumeMover.
const (
	// MoverHoldfast has this service serve the requests.
	MoverHoldfast = "holdfast"
	// MoverVelero leaves the requests to Velero's node-agent.
	MoverVelero = "velero"
)

// Config is the service's configuration; BindFlags states the defaults.
type Config struct {
	service.Base
	// VolumeMover is MoverHoldfast or MoverVelero.
	VolumeMover string
	// MoverImage is the image of mover Pods.
	MoverImage string
	// MoverPullPolicy is when a node pulls it.
	MoverPullPolicy string
	// MoverServiceAccount is the account of mover Pods; it needs no rights.
	MoverServiceAccount string
	// MoverEnvironment are names of variables of the service's environment that movers get.
	MoverEnvironment []string
	// MoverAuthorities is the ConfigMap or Secret of certificate authorities that movers trust, see
	// parseAuthorities; empty is none.
	MoverAuthorities string
	// KubeletRoot is the kubelet's directory on each node.
	KubeletRoot string
	// MoversPerNode and Movers are how many mover Pods run at once on a node and in all.
	MoversPerNode, Movers int
	// PrepareTimeout is how long a mover Pod may take to start.
	PrepareTimeout time.Duration
	// MaintenanceInterval is how often repositories are maintained, FullMaintenanceInterval how often in full; 0: never.
	MaintenanceInterval, FullMaintenanceInterval time.Duration
	// Resources of a mover Pod, as quantities; empty is none.
	MemoryRequest, MemoryLimit, CPURequest, CPULimit string
	// DutyTimeout is how long another instance must be silent before its duties are taken over.
	DutyTimeout time.Duration
}

// BindFlags adds the service's own flags.
func (c *Config) BindFlags(fs *pflag.FlagSet) {
	fs.StringVar(&c.VolumeMover, "volume-mover", MoverHoldfast, "who serves requests to move the data of volumes: holdfast (this service) or velero (Velero's node-agent)")
	fs.StringVar(&c.MoverImage, "mover-image", "", "image of mover Pods, which has the binary volume-mover as its entrypoint")
	fs.StringVar(&c.MoverPullPolicy, "mover-pull-policy", string(corev1.PullIfNotPresent), "when nodes pull the image of mover Pods: Always, IfNotPresent or Never")
	fs.StringVar(&c.MoverServiceAccount, "mover-service-account", "default", "ServiceAccount of mover Pods, which needs no rights")
	fs.StringSliceVar(&c.MoverEnvironment, "mover-env", []string{"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"}, "variables of the service's own environment that mover Pods get")
	fs.StringVar(&c.MoverAuthorities, "mover-ca", "", "configmap/NAME or secret/NAME, whose files are certificate authorities that mover Pods trust beside those of their image")
	fs.StringVar(&c.KubeletRoot, "kubelet-root", "/var/lib/kubelet", "the kubelet's directory on each node")
	fs.IntVar(&c.MoversPerNode, "movers-per-node", 2, "how many mover Pods run at once on a node")
	fs.IntVar(&c.Movers, "movers", 20, "how many mover Pods run at once in all")
	fs.DurationVar(&c.PrepareTimeout, "mover-prepare-timeout", 30*time.Minute, "how long a mover Pod may take to start")
	fs.DurationVar(&c.MaintenanceInterval, "maintenance-interval", time.Hour, "how often a repository is maintained, unless its BackupRepository says otherwise; 0: none is ever maintained")
	fs.DurationVar(&c.FullMaintenanceInterval, "full-maintenance-interval", 24*time.Hour, "how often maintenance also removes what no snapshot uses; 0: never")
	fs.StringVar(&c.MemoryRequest, "mover-memory-request", "128Mi", "memory that a mover Pod requests; empty: none")
	fs.StringVar(&c.MemoryLimit, "mover-memory-limit", "512Mi", "memory limit of a mover Pod, of which it tries to take half; empty: none")
	fs.StringVar(&c.CPURequest, "mover-cpu-request", "10m", "CPU that a mover Pod requests; empty: none")
	fs.StringVar(&c.CPULimit, "mover-cpu-limit", "", "CPU limit of a mover Pod; empty: none")
	fs.DurationVar(&c.DutyTimeout, "duty-timeout", leaderelection.DefaultTimeout, "how long another instance must be silent before its duties are taken over")
}

// validate checks the settings of this service; errors name the flag.
func (c *Config) validate() error {
	_, resources := c.parseResources()
	_, authorities := c.parseAuthorities()
	return errors.Join(
		service.CheckDurations(
			service.Duration{Flag: "mover-prepare-timeout", Value: c.PrepareTimeout, Least: time.Second},
			service.Duration{Flag: "maintenance-interval", Value: c.MaintenanceInterval, Least: time.Minute, Off: true},
			service.Duration{Flag: "full-maintenance-interval", Value: c.FullMaintenanceInterval, Least: time.Minute, Off: true},
			service.Duration{Flag: "duty-timeout", Value: c.DutyTimeout, Least: time.Second},
		),
		service.CheckCounts(
			service.Count{Flag: "movers-per-node", Value: c.MoversPerNode, Most: 100},
			service.Count{Flag: "movers", Value: c.Movers, Most: 10000},
		),
		c.checkTexts(), resources, authorities,
	)
}

func (c *Config) checkTexts() error {
	switch policy := corev1.PullPolicy(c.MoverPullPolicy); {
	case c.VolumeMover != MoverHoldfast && c.VolumeMover != MoverVelero:
		return errgrpc.Field("--volume-mover", "%q is neither %s nor %s", c.VolumeMover, MoverHoldfast, MoverVelero)
	case policy != corev1.PullAlways && policy != corev1.PullIfNotPresent && policy != corev1.PullNever:
		return errgrpc.Field("--mover-pull-policy", "%q is none of Always, IfNotPresent and Never", c.MoverPullPolicy)
	case !filepath.IsAbs(c.KubeletRoot):
		return errgrpc.Field("--kubelet-root", "%q is not an absolute path", c.KubeletRoot)
	}
	return nil
}

// parseResources returns those of a mover Pod.
func (c *Config) parseResources() (found corev1.ResourceRequirements, err error) {
	for _, r := range []struct {
		flag, text string
		list       *corev1.ResourceList
		name       corev1.ResourceName
	}{
		{"mover-memory-request", c.MemoryRequest, &found.Requests, corev1.ResourceMemory},
		{"mover-memory-limit", c.MemoryLimit, &found.Limits, corev1.ResourceMemory},
		{"mover-cpu-request", c.CPURequest, &found.Requests, corev1.ResourceCPU},
		{"mover-cpu-limit", c.CPULimit, &found.Limits, corev1.ResourceCPU},
	} {
		if r.text == "" {
			continue
		}
		quantity, parseErr := resource.ParseQuantity(r.text)
		if parseErr != nil || quantity.Sign() <= 0 {
			err = errors.Join(err, errgrpc.Field("--"+r.flag, "%q is not a quantity such as 512Mi or 100m", r.text))
			continue
		}
		if *r.list == nil {
			*r.list = corev1.ResourceList{}
		}
		(*r.list)[r.name] = quantity
	}
	return found, err
}

// parseAuthorities returns the volume of the certificate authorities; it is zero without any.
func (c *Config) parseAuthorities() (v corev1.VolumeSource, err error) {
	kind, name, _ := strings.Cut(c.MoverAuthorities, "/")
	switch {
	case c.MoverAuthorities == "":
	case kind == "configmap" && name != "":
		v.ConfigMap = &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}}
	case kind == "secret" && name != "":
		v.Secret = &corev1.SecretVolumeSource{SecretName: name}
	default:
		err = errgrpc.Field("--mover-ca", "%q is neither configmap/NAME nor secret/NAME", c.MoverAuthorities)
	}
	return v, err
}

// readEnvironment returns the variables that mover Pods get. One that is not set is left out.
func (c *Config) readEnvironment() map[string]string {
	found := map[string]string{}
	for _, name := range c.MoverEnvironment {
		if value, ok := os.LookupEnv(name); ok {
			found[name] = value
		}
	}
	return found
}
