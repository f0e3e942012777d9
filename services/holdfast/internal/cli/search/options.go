package search

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	manifestv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/manifest/v1"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/command"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/job"
)

// pageSize is the largest page that the service gives.
const pageSize = 1000

// options are what both commands share.
type options struct {
	*command.Global
	remote    command.RemoteOptions
	output    command.Output
	namespace string // of the objects, not the server's
	filter    manifestv1.BackupFilter
	api       manifestv1.ManifestServiceClient
}

func newOptions(g *command.Global) *options {
	return &options{Global: g, remote: command.RemoteManifests()}
}

// bindFlags adds the shared flags. --namespace hides the global flag of that name: the service knows its own
// namespace.
func (o *options) bindFlags(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVarP(&o.namespace, "namespace", "n", "", "namespace of the objects, not of the server")
	fs.StringVar(&o.filter.Backup, "backup", "", "only what this backup holds")
	fs.StringVar(&o.filter.Schedule, "schedule", "", "only what backups of this schedule hold")
	fs.StringVar(&o.filter.Location, "location", "", "only what backups in this location hold")
	fs.Func("since", "only what backups hold that began at this `TIME` or later: 2026-01-31T00:00:00Z, or 24h for a day ago", func(text string) (err error) {
		o.filter.Since, err = o.parseTime(text)
		return err
	})
	fs.Func("until", "only what backups hold that began before this `TIME`", func(text string) (err error) {
		o.filter.Until, err = o.parseTime(text)
		return err
	})
	o.remote.BindFlags(fs)
	o.output.BindObjectFlag(fs)
	backups := &job.Kind[*velerov1.Backup]{NewList: func() client.ObjectList { return &velerov1.BackupList{} }}
	schedules := &job.Kind[*velerov1.Schedule]{NewList: func() client.ObjectList { return &velerov1.ScheduleList{} }}
	locations := &job.Kind[*velerov1.BackupStorageLocation]{NewList: func() client.ObjectList { return &velerov1.BackupStorageLocationList{} }}
	_ = cmd.RegisterFlagCompletionFunc("backup", backups.CompleteNames(o.Global))     // the flag exists
	_ = cmd.RegisterFlagCompletionFunc("schedule", schedules.CompleteNames(o.Global)) // the flag exists
	_ = cmd.RegisterFlagCompletionFunc("location", locations.CompleteNames(o.Global)) // the flag exists
}

// parseTime reads a time, or how long ago it was.
func (o *options) parseTime(text string) (*timestamppb.Timestamp, error) {
	if ago, err := time.ParseDuration(text); err == nil {
		return timestamppb.New(o.Clock.Now().Add(-ago)), nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return nil, errors.New("neither a time such as 2026-01-31T00:00:00Z nor a duration such as 24h")
	}
	return timestamppb.New(t), nil
}

// argumentNames are the arguments that the fields of requests come from.
var argumentNames = map[string]string{"name": "PATTERN", "label_selector": "--selector", "kinds": "--kind", "kind": "KIND", "namespace": "--namespace", "annotations": "--annotation"}

// withConnection connects for the time of run, and makes its error one for people.
func (o *options) withConnection(run func() error) error {
	conn, err := o.remote.Connect(o.Global)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // nothing is lost with it
	o.api = manifestv1.NewManifestServiceClient(conn)
	err = o.remote.Explain(run())
	field := new(errgrpc.FieldError)
	if errors.As(err, &field) {
		name, _, _ := strings.Cut(field.Field, "[")
		if argument := argumentNames[name]; argument != "" {
			return fmt.Errorf("%s: %s", argument, field.Message)
		}
	}
	return err
}
