// Package embednats runs a real NATS server with JetStream inside this process. It serves `holdfast
// up` and the tests: the same server code, the same wire, on a loopback port of its own.
package embednats

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// startLimit bounds how long Start waits for the server to accept clients. Recovering a large data
// directory happens within it.
const startLimit = 60 * time.Second

// Config defines where the server keeps its data and listens.
type Config struct {
	// Dir is the directory of the JetStream store. It is created when missing and must belong to
	// this server alone.
	Dir string
	// Host is the listen address; empty means 127.0.0.1.
	Host string
	// Port is the listen port; 0 picks a free one.
	Port int
	// Token, when set, is what clients must present. URL holds it then.
	Token string
}

// Server is a running NATS server. Its methods are safe for concurrent use.
type Server struct {
	nats *server.Server
	url  string
}

// Start runs a server and returns once it accepts clients. Every write is synced to disk before it
// is acknowledged (sync_interval: always).
func Start(cfg Config) (*Server, error) {
	if cfg.Dir == "" {
		return nil, errors.New("embedded nats: dir is empty")
	}
	if cfg.Host == "" {
		cfg.Host = "127.0.0.1"
	}
	if cfg.Port == 0 {
		cfg.Port = server.RANDOM_PORT
	}
	nats, err := server.NewServer(&server.Options{
		ServerName: "holdfast", Host: cfg.Host, Port: cfg.Port,
		JetStream: true, StoreDir: cfg.Dir, SyncAlways: true,
		Authorization: cfg.Token,
		NoLog:         true, NoSigs: true, DisableJetStreamBanner: true,
	})
	if err != nil {
		return nil, fmt.Errorf("embedded nats: %w", err)
	}
	nats.Start()
	if !nats.ReadyForConnections(startLimit) {
		nats.Shutdown()
		nats.WaitForShutdown()
		return nil, fmt.Errorf("embedded nats: not ready on %s after %s (is the port taken, the directory %s writable?)",
			net.JoinHostPort(cfg.Host, strconv.Itoa(cfg.Port)), startLimit, cfg.Dir)
	}
	return &Server{nats: nats, url: clientURL(nats, cfg.Token)}, nil
}

// clientURL is the server's URL with the token, which clients send without asking for it.
func clientURL(nats *server.Server, token string) string {
	if token == "" {
		return nats.ClientURL()
	}
	return (&url.URL{Scheme: "nats", User: url.User(token), Host: nats.Addr().String()}).String()
}

// URL is the address for clients, such as "nats://127.0.0.1:4222". With Config.Token it holds the
// token and is secret.
func (s *Server) URL() string { return s.url }

// Stop shuts the server down, flushes its store and waits for both.
// A second call does nothing.
func (s *Server) Stop() {
	s.nats.Shutdown()
	s.nats.WaitForShutdown()
}

// Port is the port the server listens on.
func (s *Server) Port() int {
	if addr, ok := s.nats.Addr().(*net.TCPAddr); ok {
		return addr.Port
	}
	return 0
}
