// Package command is what every command of the CLI shares: global flags, streams, clock and client,
// types of flags, output formats, waiting for an object of the cluster, and
// connections to services. Commands take [Global] as
// a value to inject; nothing here is a package variable.
package command

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/telemetry"
)

// Global is shared by all commands of one invocation.
type Global struct {
	genericiooptions.IOStreams
	// Live: Out is a terminal, progress may rewrite its last line.
	Live bool
	// Kubeconfig, Context and Namespace are the global flags.
	Kubeconfig string
	Context    string
	Namespace  string
	// Clock is the commands' only source of time.
	Clock clock.WithTicker
	// Getenv returns an environment variable; Home is the user's directory.
	Getenv func(string) string
	Home   string
	// Connect makes a client from the flags; tests replace it.
	Connect func(*Global) (client.Client, error)
	// Dial are options of every gRPC connection; tests lead it to where they listen.
	Dial []grpc.DialOption
}

// NewGlobal returns the globals of a real invocation.
func NewGlobal(streams genericiooptions.IOStreams, clk clock.WithTicker) *Global {
	home, err := os.UserHomeDir()
	if err != nil {
		home = "" // then there is no configuration file to read
	}
	return &Global{IOStreams: streams, Clock: clk, Getenv: os.Getenv, Home: home, Connect: connectCluster}
}

// BindFlags adds the global flags.
func (g *Global) BindFlags(fs *pflag.FlagSet) {
	fs.StringVar(&g.Kubeconfig, "kubeconfig", g.Kubeconfig, "path of a kubeconfig file; KUBECONFIG or the in-cluster account when empty")
	fs.StringVar(&g.Context, "kubecontext", g.Context, "context of the kubeconfig file; its current one when empty")
	fs.StringVar(&g.Context, "context", g.Context, "same as --kubecontext")
	fs.StringVarP(&g.Namespace, "namespace", "n", g.Namespace, "namespace of the backup server (default: the client configuration's, $VELERO_NAMESPACE, velero)")
}

// ServerNamespace returns the namespace of the server, by the precedence of Velero's CLI: the
// flag, the key "namespace" of ~/.config/velero/config.json, $VELERO_NAMESPACE, "velero".
func (g *Global) ServerNamespace() (string, error) {
	namespace := g.Namespace
	if namespace == "" {
		fromFile, err := g.configuredNamespace()
		if err != nil {
			return "", err
		}
		namespace = fromFile
	}
	if namespace == "" {
		namespace = g.Getenv("VELERO_NAMESPACE")
	}
	if namespace == "" {
		namespace = velerov1.DefaultNamespace
	}
	if problems := validation.IsDNS1123Label(namespace); len(problems) > 0 {
		return "", fmt.Errorf("--namespace: %q: %s", namespace, problems[0])
	}
	return namespace, nil
}

func (g *Global) configuredNamespace() (string, error) {
	if g.Home == "" {
		return "", nil
	}
	path := filepath.Join(g.Home, ".config", "velero", "config.json")
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read client configuration: %w", err)
	}
	// Velero's other keys configure Velero's own CLI.
	var config struct {
		Namespace string `json:"namespace"`
	}
	if err := json.Unmarshal(data, &config); err != nil {
		return "", fmt.Errorf("client configuration %s: %w", path, err)
	}
	return config.Namespace, nil
}

// Client returns a client of the cluster and the server's namespace.
func (g *Global) Client() (client.Client, string, error) {
	namespace, err := g.ServerNamespace()
	if err != nil {
		return nil, "", err
	}
	c, err := g.Connect(g)
	if err != nil {
		return nil, "", err
	}
	return c, namespace, nil
}

// Printf writes to Out. A failing output stream has no better place to be reported than the exit
// code of what follows.
func (g *Global) Printf(format string, args ...any) {
	_, _ = fmt.Fprintf(g.Out, format, args...)
}

func connectCluster(g *Global) (client.Client, error) {
	cfg, err := kube.ConfigForContext(g.Kubeconfig, g.Context)
	if err != nil {
		return nil, err
	}
	c, err := client.New(cfg, client.Options{Scheme: kube.Scheme()})
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", telemetry.RedactError(err))
	}
	return c, nil
}
