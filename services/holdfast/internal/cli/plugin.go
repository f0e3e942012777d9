package cli

import (
	"cmp"
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost"
	"github.com/holdfast-io/holdfast/pkg/service"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/command"
)

// PluginList is what a directory's binaries serve, as -o prints it.
type PluginList struct {
	// Plugins are sorted by kind and name.
	Plugins []PluginEntry `json:"plugins"`
	// Failures are what a server would leave out.
	Failures []PluginFailure `json:"failures"`
}

// PluginEntry is one plugin.
type PluginEntry struct {
	Name string `json:"name"`
	Kind string `json:"kind"`
	// Command is the path of the binary.
	Command string `json:"command"`
	// Version is that of the binary's main module, empty when it has none.
	Version string `json:"version,omitempty"`
	// Touches are the resources the plugin may be called for; empty means any.
	Touches []string `json:"touches,omitempty"`
}

// PluginFailure is a binary, or one registration of it, that cannot be used.
type PluginFailure struct {
	Command string `json:"command"`
	Error   string `json:"error"`
}

// pluginGetOptions are the flags of `plugin get`.
type pluginGetOptions struct {
	*command.Global
	Output command.Output
	Dir    string
	// Plugins are the settings of plugins that servers have too.
	Plugins pluginhost.Flags
}

// pluginDirFlag names the flag that servers have too.
const pluginDirFlag = "plugin-dir"

// newPluginCommand returns the group of commands about plugins.
func newPluginCommand(g *command.Global) *cobra.Command {
	cmd := &cobra.Command{Use: "plugin", Short: "See what plugin binaries serve"}
	cmd.AddCommand(newPluginGetCommand(g))
	return cmd
}

// newPluginGetCommand returns `plugin get`.
func newPluginGetCommand(g *command.Global) *cobra.Command {
	o := &pluginGetOptions{Global: g}
	cmd := &cobra.Command{
		Use:   "get",
		Short: "List what the binaries of a plugin directory serve",
		Long:  "Start each binary of a plugin directory, as a server does, and listPlugins what it registers.",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return o.Run(cmd.Context()) },
	}
	o.Output.BindFlag(cmd.Flags())
	cmd.Flags().StringVar(&o.Dir, pluginDirFlag, "", "directory of plugin binaries (default: $"+service.EnvName(pluginDirFlag)+")")
	o.Plugins.BindFlags(cmd.Flags())
	return cmd
}

// Run lists the plugins of the binaries and prints them. A binary that cannot be used is reported,
// and no reason to fail.
func (o *pluginGetOptions) Run(ctx context.Context) error {
	dir := cmp.Or(o.Dir, o.Getenv(service.EnvName(pluginDirFlag)))
	if dir == "" {
		return errors.New("--" + pluginDirFlag + ": name the directory of the plugin binaries")
	}
	if _, err := os.Stat(dir); err != nil { // to a server, one that is absent holds no plugins
		return fmt.Errorf("--%s: %w", pluginDirFlag, err)
	}
	if err := o.Plugins.Validate(); err != nil {
		return err
	}
	namespace, err := o.ServerNamespace()
	if err != nil {
		return err
	}
	host, err := pluginhost.New(ctx, pluginhost.Config{
		Dir: dir, Namespace: namespace, Kubeconfig: o.Kubeconfig, LogLevel: "warn", Environ: os.Environ(), AllowEnv: o.Plugins.Env, Clock: o.Clock, Limits: o.Plugins.Limits(),
		Log: slog.New(slog.NewTextHandler(o.ErrOut, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		return err
	}
	return o.printList(listPlugins(host))
}

func listPlugins(host *pluginhost.Host) PluginList {
	l := PluginList{Plugins: []PluginEntry{}, Failures: []PluginFailure{}}
	versions := map[string]string{}
	for _, p := range host.Plugins() {
		version, known := versions[p.Path]
		if !known {
			version = versionOfBinary(p.Path)
			versions[p.Path] = version
		}
		l.Plugins = append(l.Plugins, PluginEntry{Name: p.Name, Kind: string(p.Kind), Command: p.Path, Version: version, Touches: p.Touches})
	}
	slices.SortStableFunc(l.Plugins, func(a, b PluginEntry) int { return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name)) })
	for _, f := range host.Failures() {
		l.Failures = append(l.Failures, PluginFailure{Command: f.Path, Error: f.Err.Error()})
	}
	return l
}

// versionOfBinary reads what Go's linker wrote into a binary; it is empty for other binaries.
func versionOfBinary(path string) string {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return ""
	}
	return info.Main.Version
}

func (o *pluginGetOptions) printList(l PluginList) error {
	if !o.Output.IsText() {
		return o.Output.Print(o.Out, l)
	}
	for _, f := range l.Failures {
		_, _ = fmt.Fprintf(o.ErrOut, "Not used: %s: %s\n", f.Command, f.Error)
	}
	if len(l.Plugins) == 0 {
		o.Printf("No plugins.\n")
		return nil
	}
	rows := make([][]string, len(l.Plugins))
	for i, p := range l.Plugins {
		rows[i] = []string{p.Name, p.Kind, p.Command, cmp.Or(p.Version, "<n/a>")}
	}
	return o.Output.PrintTable(o.Out, []string{"NAME", "KIND", "COMMAND", "VERSION"}, nil, rows)
}
