// Package operation holds the commands `holdfast operation ...`: what plugins began for a backup or
// restore and that continues after the call.
package operation

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	operationv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/operation/v1"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/command"
)

// NewCommand returns the group of commands about operations.
func NewCommand(g *command.Global) *cobra.Command {
	cmd := &cobra.Command{
		Use: "operation", Aliases: []string{"operations"},
		Short: "See, follow and cancel what plugins began for a backup or restore",
	}
	cmd.AddCommand(NewListCommand(g), NewWatchCommand(g), NewCancelCommand(g), NewLogsCommand(g))
	return cmd
}

// options are what the commands share.
type options struct {
	*command.Global
	remote command.RemoteOptions
	api    operationv1.OperationMonitorServiceClient
}

func newOptions(g *command.Global) options {
	return options{Global: g, remote: command.RemoteOperations()}
}

func (o *options) bindFlags(fs *pflag.FlagSet) { o.remote.BindFlags(fs) }

// withConnection connects for the time of run, and makes its error one for people.
func (o *options) withConnection(run func() error) error {
	conn, err := o.remote.Connect(o.Global)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // nothing is lost with it
	o.api = operationv1.NewOperationMonitorServiceClient(conn)
	return o.remote.Explain(run())
}

// jobOwner is a job as the argument names it: one of the fields is set.
type jobOwner struct{ backup, restore string }

const ownerUse = "backup/NAME|restore/NAME"

// parseOwner reads "backup/b" or "restore/r".
func parseOwner(arg string) (jobOwner, error) {
	kind, name, _ := strings.Cut(arg, "/")
	switch {
	case name == "":
	case kind == "backup" || kind == "backups":
		return jobOwner{backup: name}, nil
	case kind == "restore" || kind == "restores":
		return jobOwner{restore: name}, nil
	}
	return jobOwner{}, fmt.Errorf("%q is not of the form backup/NAME or restore/NAME", arg)
}

// String returns `Backup "b"`.
func (w jobOwner) String() string {
	if w.backup != "" {
		return fmt.Sprintf("Backup %q", w.backup)
	}
	return fmt.Sprintf("Restore %q", w.restore)
}

// operationTarget is which operation is meant.
type operationTarget struct{ action string }

func (t *operationTarget) bindFlags(fs *pflag.FlagSet) {
	fs.StringVar(&t.action, "action", "", "the action that began the operation; needed where several gave the same ID")
}

var errTarget = errors.New("give either the ID of an operation or --all")
