package job

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/command"
)

// Session is a command that is connected to a cluster.
type Session struct {
	Global *command.Global
	Client client.WithWatch
	// Namespace is the server's.
	Namespace string
}

// Connect connects to the cluster that the global flags name.
func Connect(g *command.Global) (*Session, error) {
	c, namespace, err := g.Client()
	if err != nil {
		return nil, err
	}
	return &Session{Global: g, Client: c, Namespace: namespace}, nil
}

// Printf writes to the command's output.
func (s *Session) Printf(format string, args ...any) { s.Global.Printf(format, args...) }

// Fetcher returns what fetches the files of jobs.
func (s *Session) Fetcher(options DownloadOptions) *Fetcher {
	return &Fetcher{Client: s.Client, Clock: s.Global.Clock, Namespace: s.Namespace, Options: options}
}
