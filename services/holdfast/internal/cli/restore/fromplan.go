package restore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/pflag"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/storedplan"
	restorev1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/restore/v1"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/command"
)

// planOptions are the flags of a restore that executes a plan.
type planOptions struct {
	from   string
	strict bool
	remote command.RemoteOptions
	flags  *pflag.FlagSet
}

func (o *planOptions) bindFlags(fs *pflag.FlagSet) {
	o.flags, o.remote = fs, command.RemoteRestores()
	fs.StringVar(&o.from, "from-plan", "", "`ID` of the plan of `holdfast restore plan` to execute, which says what is restored and how")
	fs.BoolVar(&o.strict, "strict", false, "with --from-plan, change nothing where the plan made anew is another one")
	o.remote.BindFlags(fs)
}

// chosenFlags are flags that say what is restored and how, as a plan does.
var chosenFlags = []string{
	"from-backup", "from-schedule", "allow-partially-failed", "include-namespaces", "exclude-namespaces", "include-resources", "exclude-resources",
	"namespace-mappings", "include-cluster-resources", "selector", "or-selector", "existing-resource-policy", "restore-volumes", "preserve-nodeports",
	"status-include-resources", "status-exclude-resources", "resource-modifier-configmap", "item-operation-timeout", "write-sparse-files",
	"parallel-files-download", "order", "item", "with-dependencies", "with-children",
}

// adoptPlan takes spec and annotations from the plan.
func (o *CreateOptions) adoptPlan(ctx context.Context) error {
	errs := []error{o.CheckName(), o.CheckWait()}
	for _, name := range chosenFlags {
		if f := o.plan.flags.Lookup(name); f != nil && f.Changed {
			errs = append(errs, fmt.Errorf("--%s cannot be combined with --from-plan", name))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	header, err := o.readPlan(ctx)
	if err != nil {
		return fmt.Errorf("--from-plan: %w", o.plan.remote.Explain(err))
	}
	if header.Kind != storedplan.KindRestore {
		return fmt.Errorf("--from-plan: %s is the plan of a %s", o.plan.from, header.Kind)
	}
	o.Spec = velerov1.RestoreSpec{}
	if err := json.Unmarshal(header.Spec, &o.Spec); err != nil {
		return fmt.Errorf("--from-plan: spec of the plan: %w", err)
	}
	for key, value := range header.Annotations {
		if _, set := o.Annotations[key]; !set {
			o.addAnnotation(key, value)
		}
	}
	o.addAnnotation(holdfast.AnnotationPlan, o.plan.from)
	if o.plan.strict {
		o.addAnnotation(holdfast.AnnotationPlanStrict, "true")
	}
	o.Name = cmp.Or(o.Name, header.Backup+"-"+o.Global.Clock.Now().Format("20060102150405"))
	return nil
}

func (o *CreateOptions) readPlan(ctx context.Context) (*storedplan.Header, error) {
	conn, err := o.plan.remote.Connect(o.Global)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }() // nothing is lost with it
	stream, err := restorev1.NewRestoreServiceClient(conn).GetPlan(ctx, &restorev1.GetPlanRequest{Id: o.plan.from})
	if err != nil {
		return nil, err
	}
	first, err := stream.Recv()
	if err != nil {
		return nil, err
	}
	return storedplan.HeaderOf(first.GetPlan())
}
