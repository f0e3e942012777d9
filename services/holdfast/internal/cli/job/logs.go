package job

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/command"
)

// NewLogsCommand returns the command that prints the log of a job.
func (k *Kind[T]) NewLogsCommand(g *command.Global) *cobra.Command {
	options := DownloadOptions{Timeout: time.Minute}
	cmd := &cobra.Command{
		Use:               "logs NAME",
		Short:             "Print the log of a " + k.kindNoun(),
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: OneArg(k.CompleteNames(g)),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := Connect(g)
			if err != nil {
				return err
			}
			return k.streamLogs(cmd.Context(), s, options, args[0])
		},
	}
	options.BindFlags(cmd.Flags())
	if k.Live != nil {
		k.Live.bindFlags(cmd.Flags())
	}
	return cmd
}

func (k *Kind[T]) streamLogs(ctx context.Context, s *Session, options DownloadOptions, name string) error {
	obj, err := k.Find(ctx, s, name)
	if err != nil {
		return err
	}
	if k.Live != nil && isLogged(k.shownPhase(obj)) {
		said, unread := k.Live.printSoFar(ctx, s.Global, name)
		if said {
			return unread
		}
		if obj, err = k.Find(ctx, s, name); err != nil {
			return err
		}
		if phase := k.shownPhase(obj); unread != nil && isLogged(phase) {
			k.printWaits(s, obj)
			return fmt.Errorf("%s %q is %s; what it has logged so far cannot be read: %w", k.kindNoun(), name, phase, unread)
		}
	}
	if phase := k.shownPhase(obj); !hasLog(phase) {
		k.printWaits(s, obj)
		if errs := k.Status(obj).ValidationErrors; phase == velerov1.BackupPhaseFailedValidation {
			return fmt.Errorf("%[1]s %[2]q is %[3]s: it did not run, and there is no log to show; `holdfast %[1]s describe %[2]s` shows why: %[4]s", k.kindNoun(), name, phase, strings.Join(errs, "; "))
		}
		return fmt.Errorf("%[1]s %[2]q is %[3]s; its log is available when its run is over: `holdfast %[1]s describe %[2]s` shows how far it is", k.kindNoun(), name, phase)
	}
	location, err := k.Location(ctx, s.Client, obj)
	if err != nil {
		return err
	}
	log, err := s.Fetcher(options).Open(ctx, k.Files.Log, name, location)
	if err != nil {
		return err
	}
	_, err = io.Copy(s.Global.Out, log)
	return errors.Join(err, log.Close())
}

func (k *Kind[T]) printWaits(s *Session, obj T) {
	if waits := k.waitTexts(obj); len(waits) > 0 {
		s.Printf("%s %q waits:\n  %s\n", k.Name, obj.GetName(), strings.Join(waits, "\n  "))
	}
}
