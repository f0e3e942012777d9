package pluginhost

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
)

// Config is where plugins are and how they are run.
type Config struct {
	// Dir is searched for executables, with the directories below it. Empty or absent means that
	// there are none.
	Dir string
	// Namespace is the server namespace, which plugins get as VELERO_NAMESPACE.
	Namespace string
	// Kubeconfig is given to plugins as KUBECONFIG; empty leaves the value in Environ.
	Kubeconfig string
	// LogLevel and Features are given to plugins as flags; LogLevel is debug, info, warn or error.
	LogLevel string
	Features []string
	// Environ is the environment of this process. Plugins get what is on a list of names, see
	// AllowEnv, and what that allows.
	Environ []string
	// AllowEnv are names of variables that plugins get beyond the list; a * at the end matches any
	// rest.
	AllowEnv []string
	// SocketDir is where sockets are put; empty means the system's directory for temporary files.
	// Its path must be short, at most 55 bytes, because that of a socket is limited.
	SocketDir string
	// Log gets what plugins log while they are asked what they register.
	Log *slog.Logger
	// Clock measures backoffs and the limits of transfers.
	Clock clock.WithTicker
	// Limits bound what plugins may cost.
	Limits Limits
	// Metrics takes the times of calls; nil takes none.
	Metrics prometheus.Registerer
}

// Host holds the plugins of a directory. Safe for concurrent use.
type Host struct {
	cfg Config
	// unread are files that could not be looked at, and listings what the others registered; Run
	// alone changes these.
	unread   []BinaryError
	listings []binaryListing
	known    atomic.Pointer[catalog]
	backoffs *backoffs
	calls    *prometheus.HistogramVec
	// operations are nil until they are asked for.
	operations atomic.Pointer[Operations]
}

// featureCSI is Velero's feature without which the actions of its CSI support do not run.
const featureCSI = "EnableCSI"

// New starts each binary in the directory and lists what it registers. What cannot be used is in
// Failures, and Run tries again; an error means that the directory cannot be read, or that ctx
// ended.
func New(ctx context.Context, cfg Config) (*Host, error) {
	cfg.Limits = cfg.Limits.withDefaults()
	cfg.Environ = pluginEnviron(cfg)
	calls, err := newCallTimes(cfg.Metrics)
	if err != nil {
		return nil, err
	}
	h := &Host{cfg: cfg, backoffs: newBackoffs(), calls: calls}
	paths, failures, err := findExecutables(cfg.Dir, cfg.Log)
	if err != nil {
		return nil, fmt.Errorf("plugin directory: %w", err)
	}
	h.unread, h.listings = failures, h.listPlugins(ctx, paths)
	if ctx.Err() != nil {
		return nil, contextCause(ctx)
	}
	h.arrangeCatalog()
	return h, nil
}

// specFor returns how to start the binary. Of Velero's flags plugins get the two that mean something
// to them: its framework refuses values that Velero would refuse, and the process would end.
func (h *Host) specFor(path string, log *slog.Logger) *processSpec {
	level := h.cfg.LogLevel
	if level == "warn" {
		level = "warning"
	}
	args := []string{"--log-level=" + orDefault(level, "info")}
	if len(h.cfg.Features) > 0 {
		args = append(args, "--features="+strings.Join(h.cfg.Features, ","))
	}
	return &processSpec{path: path, args: args, env: h.cfg.Environ, socketDir: h.cfg.SocketDir, log: log, clock: h.cfg.Clock, limits: h.cfg.Limits, calls: h.calls}
}

// findExecutables returns the files below dir that have an execute permission, in alphanumeric order of
// their paths. A link counts as what it leads to, but linked directories are not searched.
func findExecutables(dir string, log *slog.Logger) (paths []string, failures []BinaryError, err error) {
	if dir == "" {
		return nil, nil, nil
	}
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if path == dir {
			if err == nil && !entry.IsDir() {
				err = errors.New(path + " is not a directory")
			}
			return err
		}
		if err == nil && entry.IsDir() {
			return nil
		}
		var info fs.FileInfo
		if err == nil {
			info, err = os.Stat(path)
		}
		switch {
		case err != nil:
			failures = append(failures, BinaryError{Path: path, Err: err, unread: true})
		case info.IsDir():
		case info.Mode()&0o111 == 0:
			log.Warn("File in the plugin directory is not executable; ignoring it", "path", path)
		default:
			paths = append(paths, path)
		}
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	return paths, failures, err
}
