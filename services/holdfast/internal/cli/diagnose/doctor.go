package diagnose

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/pkg/service"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/command"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/doctor"
)

// ErrFailed means that a check failed.
var ErrFailed = errors.New("checks failed")

// doctorOptions are the flags of `doctor`.
type doctorOptions struct {
	*command.Global
	Output      command.Output
	Checks      []string
	Skip        []string
	Examination Options
}

// NewDoctorCommand returns `doctor`; ports are those of the services by name.
func NewDoctorCommand(g *command.Global, ports map[string]service.Ports) *cobra.Command {
	o := &doctorOptions{Global: g, Examination: newOptions(g, ports)}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check whether everything that Holdfast needs is there and works",
		Long: `Checks the cluster, the definitions of velero.io, a Velero beside Holdfast, the rights
of the services and of the caller, NATS, the services, plugins, and every backup storage
location: objects are written below metadata/holdfast/doctor/ of each, about 5 MiB, and
removed again. What is wrong comes with a remedy. The exit code is 1 if a check failed;
warnings, and what could not be checked from here, do not make it fail.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.Run(cmd.Context()) },
	}
	fs := cmd.Flags()
	o.Output.BindFlag(fs)
	fs.StringSliceVar(&o.Checks, "checks", doctor.Names(), "checks to run, separated by commas")
	fs.StringSliceVar(&o.Skip, "skip", nil, "checks not to run, separated by commas")
	o.Examination.BindFlags(fs)
	return cmd
}

// Run runs the checks and prints what they found. ErrFailed is returned when one failed.
func (o *doctorOptions) Run(ctx context.Context) error {
	names, err := o.checkNames()
	if err != nil {
		return err
	}
	cfg, done, err := o.Examination.Config(ctx)
	if err != nil {
		return err
	}
	report := doctor.Run(ctx, cfg, names)
	if err := errors.Join(o.printReport(report), done(), ctx.Err()); err != nil {
		return err
	}
	if failed := report.Count(doctor.Failed); failed > 0 {
		return fmt.Errorf("%w: %d", ErrFailed, failed)
	}
	return nil
}

// checkNames are the checks to run.
func (o *doctorOptions) checkNames() ([]string, error) {
	known := doctor.Names()
	for _, flag := range []struct {
		name  string
		names []string
	}{{"--checks", o.Checks}, {"--skip", o.Skip}} {
		for _, name := range flag.names {
			if !slices.Contains(known, name) {
				return nil, fmt.Errorf("%s: %q is none of %s", flag.name, name, strings.Join(known, ", "))
			}
		}
	}
	names := slices.DeleteFunc(slices.Clone(o.Checks), func(name string) bool { return slices.Contains(o.Skip, name) })
	if len(names) == 0 {
		return nil, errors.New("--checks, --skip: no check is left")
	}
	return names, nil
}

func (o *doctorOptions) printReport(report doctor.Report) error {
	if !o.Output.IsText() {
		return o.Output.Print(o.Out, report)
	}
	for i := range report.Findings {
		f := &report.Findings[i]
		subject := f.Check
		if f.Subject != "" {
			subject += ": " + f.Subject
		}
		o.Printf("%-8s %s: %s\n", strings.ToUpper(string(f.Status)), subject, f.Message)
		if f.Remedy != "" {
			o.Printf("         -> %s\n", f.Remedy)
		}
	}
	o.Printf("%d ok, %d skipped, %d warnings, %d failed\n",
		report.Count(doctor.OK), report.Count(doctor.Skipped), report.Count(doctor.Warning), report.Count(doctor.Failed))
	return nil
}
