package operation

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	operationv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/operation/v1"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/command"
)

// NewLogsCommand returns `operation logs`.
func NewLogsCommand(g *command.Global) *cobra.Command {
	o, which, follow, since := newOptions(g), operationTarget{}, false, time.Duration(0)
	cmd := &cobra.Command{
		Use:   "logs " + ownerUse + " ID",
		Short: "Print what an operation has logged",
		Args:  cobra.ExactArgs(2), //nolint:mnd // a job and an operation
		RunE: func(cmd *cobra.Command, args []string) error {
			who, err := parseOwner(args[0])
			if err != nil {
				return err
			}
			if since < 0 {
				return errors.New("--since: must not be negative")
			}
			req := &operationv1.StreamOperationLogsRequest{
				Owner:     &operationv1.StreamOperationLogsRequest_Backup{Backup: who.backup},
				Operation: &operationv1.OperationName{Id: args[1], Action: which.action}, Follow: follow,
			}
			if who.restore != "" {
				req.Owner = &operationv1.StreamOperationLogsRequest_Restore{Restore: who.restore}
			}
			if since > 0 {
				req.Since = timestamppb.New(g.Clock.Now().Add(-since))
			}
			return o.withConnection(func() error { return o.streamLogs(cmd.Context(), req) })
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "print new lines until the operation has ended")
	cmd.Flags().DurationVar(&since, "since", 0, "only lines of the last 5m, 1h, ...; all when 0")
	which.bindFlags(cmd.Flags())
	o.bindFlags(cmd.Flags())
	return cmd
}

func (o *options) streamLogs(ctx context.Context, req *operationv1.StreamOperationLogsRequest) error {
	stream, err := o.api.StreamOperationLogs(ctx, req)
	if err != nil {
		return err
	}
	for {
		line, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF), err != nil && ctx.Err() != nil && req.GetFollow():
			return nil
		case err != nil:
			return err
		}
		o.Printf("%s\n", logLine(line))
	}
}

// logLine is a line as people read it.
func logLine(line *operationv1.StreamOperationLogsResponse) string {
	var parts []string
	if line.GetTime() != nil {
		parts = append(parts, line.GetTime().AsTime().Format(time.RFC3339))
	}
	parts = append(parts, line.GetLevel(), line.GetMessage())
	for _, key := range slices.Sorted(maps.Keys(line.GetFields())) {
		parts = append(parts, fmt.Sprintf("%s=%q", key, line.GetFields()[key]))
	}
	return strings.Join(parts, " ")
}
