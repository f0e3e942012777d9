package queue

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	queuev1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/queue/v1"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/command"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/job"
)

// Explanation is where a backup stands, as -o prints it.
type Explanation struct {
	Entry
	// Reason is NextPass, OverlapRunning, OverlapAhead, RestoreAhead, NoPlace, LocationUnavailable or
	// WriteRefused; absent when the backup does not wait.
	Reason    string     `json:"reason,omitempty"`
	Message   string     `json:"message"`
	Obstacles []Obstacle `json:"obstacles,omitempty"`
	LeftOut   int32      `json:"obstaclesLeftOut,omitempty"`
}

// Obstacle is one thing in the way.
type Obstacle struct {
	Reason     string     `json:"reason"`
	Jobs       []Job      `json:"jobs"`
	Namespaces []string   `json:"namespaces,omitempty"`
	Since      *time.Time `json:"since,omitempty"`
	Limit      int32      `json:"limit,omitempty"`
}

// Job names a backup or restore.
type Job struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
	UID  string `json:"uid"`
}

// NewExplainCommand returns `queue explain`.
func NewExplainCommand(g *command.Global) *cobra.Command {
	o := newOptions(g)
	cmd := &cobra.Command{
		Use:   "explain NAME",
		Short: "Say what a backup waits for",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.withConnection(func() error { return o.explainBackup(cmd.Context(), args[0]) })
		},
	}
	o.BindFlags(cmd.Flags())
	return cmd
}

// Ask calls the service at an address for the explanation of a backup of the server namespace.
func Ask(ctx context.Context, g *command.Global, at command.RemoteOptions, name string) (x *Explanation, err error) {
	o := Options{Global: g, Remote: at}
	err = o.withConnection(func() error {
		x, err = o.askExplanation(ctx, name)
		return err
	})
	return x, err
}

func (o *Options) askExplanation(ctx context.Context, name string) (*Explanation, error) {
	resp, err := o.api.ExplainBackup(ctx, &queuev1.ExplainBackupRequest{Name: name})
	if err != nil {
		return nil, o.Remote.Explain(err)
	}
	if err := o.checkNamespace(resp.GetEntry()); err != nil {
		return nil, err
	}
	return newExplanation(resp), nil
}

func (o *Options) explainBackup(ctx context.Context, name string) error {
	x, err := o.askExplanation(ctx, name)
	if err != nil {
		return err
	}
	if !o.Output.IsText() {
		return o.Output.Print(o.Out, x)
	}
	return x.writeExplanation(o.Global)
}

func newExplanation(resp *queuev1.ExplainBackupResponse) *Explanation {
	x := &Explanation{Entry: newEntry(resp.GetEntry()), Reason: reasonName(resp.GetReason()), Message: resp.GetMessage(), LeftOut: resp.GetObstaclesLeftOut()}
	for _, in := range resp.GetObstacles() {
		out := Obstacle{Reason: reasonName(in.GetReason()), Namespaces: in.GetNamespaces(), Since: command.TimeOf(in.GetSince()), Limit: in.GetLimit()}
		for _, j := range in.GetJobs() {
			out.Jobs = append(out.Jobs, Job{Kind: kindName(j.GetKind()), Name: j.GetName(), UID: j.GetUid()})
		}
		x.Obstacles = append(x.Obstacles, out)
	}
	return x
}

// reasonName is WAIT_REASON_NO_PLACE as NoPlace; empty for none.
func reasonName(r queuev1.WaitReason) string {
	if r == queuev1.WaitReason_WAIT_REASON_UNSPECIFIED {
		return ""
	}
	var out strings.Builder
	for word := range strings.SplitSeq(strings.TrimPrefix(r.String(), "WAIT_REASON_"), "_") {
		out.WriteString(word[:1] + strings.ToLower(word[1:]))
	}
	return out.String()
}

// writeExplanation explains to people.
func (x *Explanation) writeExplanation(g *command.Global) error {
	now := g.Clock.Now()
	p := &job.Page{}
	p.Field(0, "Backup", x.Name)
	p.Field(0, "Phase", x.Phase)
	if x.Position > 0 {
		p.Field(0, "Position", x.Position)
		p.Field(0, "Priority", x.rankText())
		p.Field(0, "Waiting for", duration.ShortHumanDuration(now.Sub(x.CreateTime)))
	}
	p.Field(0, "Namespaces", job.FormatNames(x.Namespaces, ""))
	p.Field(0, "Why", x.Message)
	if len(x.Obstacles) > 0 {
		p.Heading("In the way")
	}
	if _, err := p.WriteTo(g.Out); err != nil || len(x.Obstacles) == 0 {
		return err
	}
	rows := command.BuildRows(x.Obstacles, func(o Obstacle) []string { return o.tableRow(now) })
	if err := (&command.Output{}).PrintTable(g.Out, []string{"  JOB", "REASON", "NAMESPACES", "FOR"}, nil, rows); err != nil {
		return err
	}
	if x.LeftOut > 0 {
		g.Printf("  and %d more\n", x.LeftOut)
	}
	return nil
}

func (o *Obstacle) tableRow(now time.Time) []string {
	names := make([]string, len(o.Jobs))
	for i, j := range o.Jobs {
		names[i] = strings.ToLower(j.Kind) + " " + j.Name
	}
	text, since := o.Reason, ""
	if o.Limit > 0 {
		text = fmt.Sprintf("%s (limit %d)", o.Reason, o.Limit)
	}
	if o.Since != nil {
		since = duration.ShortHumanDuration(now.Sub(*o.Since))
	}
	return []string{"  " + briefList(names), text, briefList(o.Namespaces), since}
}
