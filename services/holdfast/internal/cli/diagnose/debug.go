package diagnose

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/service"
	"github.com/holdfast-io/holdfast/pkg/telemetry"
	queuev1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/queue/v1"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/command"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/debug"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/doctor"
)

const (
	// lines is how many lines of a log are asked for, from its end.
	lines = 20000
	// queuePages of queuePage entries are read of the queue.
	queuePages, queuePage = 5, 1000
	queueService          = "queue-scheduler"
)

// debugOptions are the flags of `debug`.
type debugOptions struct {
	*command.Global
	Output      string
	Examination Options
}

// NewDebugCommand returns `debug`; ports are those of the services by name.
func NewDebugCommand(g *command.Global, ports map[string]service.Ports) *cobra.Command {
	o := &debugOptions{Global: g, Examination: newOptions(g, ports)}
	cmd := &cobra.Command{
		Use:   "debug",
		Short: "Collect logs, objects and state into one archive, without secrets",
		Long: `Collects into one tar.gz: the logs of the Pods, the objects of velero.io and of the
installation in the server namespace, its Events and Leases, the queue, metrics, versions,
and what holdfast doctor finds without writing to buckets. Secrets are never read; values
of environment variables, configs of plugins, commands, credentials of URLs and what looks
like a password or token are replaced. Look through the archive before you pass it on.
What cannot be collected is listed in problems.txt and is no reason to fail.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.Run(cmd.Context()) },
	}
	cmd.Flags().StringVarP(&o.Output, "output", "o", "", "file to write, which must not exist (default: holdfast-debug-TIME.tar.gz)")
	o.Examination.BindFlags(cmd.Flags())
	return cmd
}

// Run writes the archive and prints where it is and what it lacks.
func (o *debugOptions) Run(ctx context.Context) error {
	cfg, done, err := o.bundleConfig(ctx)
	if err != nil {
		return err
	}
	path := o.Output
	if path == "" {
		path = "holdfast-debug-" + o.Clock.Now().UTC().Format("20060102-150405") + ".tar.gz"
	}
	const mine = 0o600
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mine)
	if err != nil {
		return errors.Join(fmt.Errorf("--output: %w", err), done())
	}
	summary, err := debug.WriteArchive(ctx, file, cfg)
	if err = errors.Join(err, file.Close(), done()); err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", path, err), os.Remove(path))
	}
	for _, problem := range summary.Problems {
		_, _ = fmt.Fprintf(o.ErrOut, "Not in it: %s\n", problem)
	}
	o.Printf("%s: %d files\n", path, summary.Files)
	return nil
}

func (o *debugOptions) bundleConfig(ctx context.Context) (debug.Config, func() error, error) {
	checks, done, err := o.Examination.Config(ctx)
	if err != nil {
		return debug.Config{}, nil, err
	}
	config, err := o.Examination.Rest()
	if err != nil {
		return debug.Config{}, nil, errors.Join(err, done())
	}
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return debug.Config{}, nil, errors.Join(fmt.Errorf("connect to the cluster: %w", telemetry.RedactError(err)), done())
	}
	return debug.Config{
		Namespace: checks.Namespace, Clock: o.Clock, Reader: checks.Client, Metrics: checks.Metrics, Timeout: o.Examination.Timeout,
		Logs: func(ctx context.Context, pod, container string, previous bool) (io.ReadCloser, error) {
			return clients.CoreV1().Pods(checks.Namespace).GetLogs(pod, &corev1.PodLogOptions{
				Container: container, Previous: previous, TailLines: ptr.To[int64](lines), Timestamps: true,
			}).Stream(ctx)
		},
		Values: map[string]func(context.Context) (any, error){
			"versions.json": func(context.Context) (any, error) {
				versions := map[string]any{"client": telemetry.BuildInfo()}
				if server, err := checks.Discovery.ServerVersion(); err != nil {
					versions["kubernetesError"] = err.Error()
				} else {
					versions["kubernetes"] = server
				}
				return versions, nil
			},
			"doctor.json": func(context.Context) (any, error) {
				return doctor.Run(ctx, checks, readOnly()), nil // what it had no time for is not in it
			},
			"queue.json": func(ctx context.Context) (any, error) { return o.readQueue(ctx, checks.Services[queueService]) },
		},
	}, done, nil
}

// readOnly are the checks that write nothing.
func readOnly() []string {
	var names []string
	for _, name := range doctor.Names() {
		if name != "locations" {
			names = append(names, name)
		}
	}
	return names
}

// readQueue reads what runs and what waits.
func (o *debugOptions) readQueue(ctx context.Context, address string) (any, error) {
	conn, err := o.Examination.Dial(queueService, address)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }() // nothing is lost with it
	api, entries := queuev1.NewQueueServiceClient(conn), []json.RawMessage{}
	token := ""
	for range queuePages {
		page, err := api.ListQueue(ctx, &queuev1.ListQueueRequest{PageSize: queuePage, PageToken: token})
		if err != nil {
			return nil, errgrpc.FromStatus(err)
		}
		for _, entry := range page.GetEntries() {
			data, err := protojson.Marshal(entry)
			if err != nil {
				return nil, err
			}
			entries = append(entries, data)
		}
		if token = page.GetNextPageToken(); token == "" {
			break
		}
	}
	return map[string]any{"address": address, "entries": entries, "more": token != ""}, nil
}
