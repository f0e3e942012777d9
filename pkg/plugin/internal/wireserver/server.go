// Package wireserver answers Velero's and Holdfast's plugin protocols with the plugins of a
// registry, and has what both ends of a plugin's process have to agree on.
package wireserver

import (
	"crypto/rand"
	"fmt"
	"log/slog"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-io/holdfast/pkg/plugin"
	pluginv1 "github.com/holdfast-io/holdfast/pkg/plugin/wire/holdfast/plugin/v1"
	"github.com/holdfast-io/holdfast/pkg/plugin/wire/velero"
	velerov1 "github.com/holdfast-io/holdfast/pkg/plugin/wire/velero/v1"
	velerov2 "github.com/holdfast-io/holdfast/pkg/plugin/wire/velero/v2"
)

// maxMessage bounds what a server can send: far above the largest object an API server stores, with
// its job beside it.
const maxMessage = 64 << 20

// Options say what plugins get to see of the process.
type Options struct {
	// Command is the path of the executable, part of listings.
	Command string
	// Log is what plugins log to.
	Log *slog.Logger
	// Features are the server's feature flags.
	Features []string
}

// Server serves the plugins of a process.
type Server struct {
	options   Options
	processID string
	sorted    []*pluginHandle
	byName    map[kindAndName]*pluginHandle
	jobs      jobCache
}

type kindAndName struct {
	kind plugin.Kind
	name string
}

// New makes a server of registrations, as Registry.Plugins returns them.
func New(registrations []plugin.Registration, options Options) *Server {
	s := &Server{options: options, processID: rand.Text(), byName: make(map[kindAndName]*pluginHandle, len(registrations))}
	for _, r := range registrations {
		h := &pluginHandle{Registration: r, env: plugin.Env{Name: r.Name, Log: options.Log.With("plugin", r.Name), Features: options.Features}}
		s.sorted = append(s.sorted, h)
		s.byName[kindAndName{r.Kind, r.Name}] = h
	}
	return s
}

// GRPCOptions are what a gRPC server of it needs beside the transport's.
func (s *Server) GRPCOptions() []grpc.ServerOption {
	return []grpc.ServerOption{grpc.MaxRecvMsgSize(maxMessage), grpc.ChainUnaryInterceptor(guardUnary), grpc.ChainStreamInterceptor(guardStream)}
}

// Register registers all services, also of kinds that no plugin has: those know no plugin.
func (s *Server) Register(r grpc.ServiceRegistrar) {
	velero.RegisterPluginListerServer(r, lister{Server: s})
	velero.RegisterBackupItemActionServer(r, backupActions{Server: s})
	velerov2.RegisterBackupItemActionServer(r, movedBackups{Server: s})
	velerov2.RegisterRestoreItemActionServer(r, restoreActions{Server: s})
	velero.RegisterDeleteItemActionServer(r, deleteActions{Server: s})
	velerov1.RegisterItemBlockActionServer(r, blockActions{Server: s})
	velero.RegisterObjectStoreServer(r, objectStores{Server: s})
	velero.RegisterVolumeSnapshotterServer(r, snapshotters{Server: s})
	pluginv1.RegisterPluginServiceServer(r, describer{Server: s})
	pluginv1.RegisterAsyncActionServiceServer(r, asyncActions{Server: s})
}

// pluginHandle is one plugin, made when it is first called.
type pluginHandle struct {
	plugin.Registration
	env plugin.Env

	mu       sync.Mutex
	made     any
	selected *checkedSelector
}

// pluginInstance returns the plugin, making it if that has not succeeded yet.
func (h *pluginHandle) pluginInstance() (any, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.made != nil {
		return h.made, nil
	}
	made, err := h.New(h.env)
	if err != nil {
		return nil, fmt.Errorf("%s %q cannot be made: %w", h.Kind, h.Name, err)
	}
	if made == nil {
		return nil, fmt.Errorf("%s %q cannot be made: its constructor returned nil", h.Kind, h.Name)
	}
	h.made = made
	return made, nil
}

// findExternal returns an asynchronous action that Velero's protocol serves too.
func findExternal[T any](s *Server, kind plugin.Kind, name string) (T, *pluginHandle, error) {
	if h, ok := s.byName[kindAndName{kind, name}]; !ok || !h.OutOfProcess {
		var none T
		return none, nil, status.Errorf(codes.NotFound, "plugin: no %s whose operations live outside the process is called %q", kind, name)
	}
	return findPlugin[T](s, kind, name)
}

// findPlugin returns a plugin as the interface of its kind.
func findPlugin[T any](s *Server, kind plugin.Kind, name string) (T, *pluginHandle, error) {
	var none T
	h, ok := s.byName[kindAndName{kind, name}]
	if !ok {
		return none, nil, status.Errorf(codes.NotFound, "plugin: no %s is called %q", kind, name)
	}
	made, err := h.pluginInstance()
	if err != nil {
		return none, nil, err
	}
	p, ok := made.(T)
	if !ok {
		return none, nil, status.Errorf(codes.Internal, "plugin: %s %q is a %T", kind, name, made)
	}
	return p, h, nil
}
