package backup

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	manifestv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/manifest/v1"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/command"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/job"
)

// CatOptions are the flags of `backup cat`.
type CatOptions struct {
	ContentOptions
	Request     manifestv1.GetUnmaskedItemRequest
	ShowSecrets bool
	// ShowManagedFields keeps metadata.managedFields, which kubectl hides too.
	ShowManagedFields bool
	Output            command.Output
}

// NewCatCommand returns `backup cat`.
func NewCatCommand(g *command.Global, kind *job.Kind[*velerov1.Backup]) *cobra.Command {
	o := &CatOptions{ContentOptions: newContentOptions(g)}
	_ = o.Output.Set("yaml") // a format that there is
	cmd := &cobra.Command{
		Use:   "cat NAME KIND/NAME",
		Short: "Print an object as it is in a backup",
		Long: `Prints an object as it is in a backup. The values of a Secret are masked unless
--show-secrets is given, for which the server wants a right of its own.`,
		Example: `  holdfast backup cat nightly deploy/web -n shop
  holdfast backup cat nightly secret/db -n shop --show-secrets -o jsonpath='{.data.password}'`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			o.Request.Backup, o.Request.Namespace = args[0], o.Namespace
			if o.Request.Kind, o.Request.Name, err = splitItemName(args[1]); err != nil {
				return err
			}
			return o.withConnection(func() error { return o.Run(cmd.Context()) })
		},
	}
	cmd.ValidArgsFunction = o.completeItem(kind.CompleteNames(g))
	o.bindFlags(cmd)
	cmd.Flags().BoolVar(&o.ShowSecrets, "show-secrets", false, "print the values of a Secret too")
	cmd.Flags().BoolVar(&o.ShowManagedFields, "show-managed-fields", false, "print metadata.managedFields too")
	o.Output.BindFlag(cmd.Flags())
	return cmd
}

// Run prints the object.
func (o *CatOptions) Run(ctx context.Context) error {
	body, masked, err := o.readObject(ctx)
	if errors.Is(err, errgrpc.ErrNotFound) && o.Namespace == "" {
		err = o.suggestNamespace(ctx, o.Request.GetBackup(), o.Request.GetKind(), o.Request.GetName(), err)
	}
	if err != nil {
		return err
	}
	if o.Output.IsText() {
		if err := o.Output.Set("yaml"); err != nil {
			return err
		}
	}
	var object map[string]any
	if err := utiljson.Unmarshal(body, &object); err != nil {
		return fmt.Errorf("read %s/%s: %w", o.Request.GetKind(), o.Request.GetName(), err)
	}
	if metadata, ok := object["metadata"].(map[string]any); ok && !o.ShowManagedFields {
		delete(metadata, "managedFields")
	}
	if err := o.Output.Print(o.Out, object); err != nil {
		return err
	}
	if masked {
		_, _ = fmt.Fprintln(o.ErrOut, "The values of the Secret are masked; --show-secrets shows them.")
	}
	return nil
}

func (o *CatOptions) readObject(ctx context.Context) (body []byte, masked bool, err error) {
	r := &o.Request
	if o.ShowSecrets {
		resp, err := o.api.GetUnmaskedItem(ctx, r)
		return resp.GetBody(), false, errgrpc.FromStatus(err)
	}
	resp, err := o.api.GetItem(ctx, &manifestv1.GetItemRequest{Backup: r.GetBackup(), Kind: r.GetKind(), Namespace: r.GetNamespace(), Name: r.GetName(), WithBody: true})
	return resp.GetBody(), resp.GetMasked(), errgrpc.FromStatus(err)
}

// suggestNamespace adds to the error in which namespaces there is an object of that kind and name.
func (o *ContentOptions) suggestNamespace(ctx context.Context, backup, kind, name string, cause error) error {
	page, err := o.api.ListItems(ctx, &manifestv1.ListItemsRequest{Backup: backup, Kinds: []string{kind}, Name: name})
	if err != nil || len(page.GetItems()) == 0 {
		return cause
	}
	namespaces := make([]string, len(page.GetItems()))
	for i, item := range page.GetItems() {
		namespaces[i] = item.GetNamespace()
	}
	return fmt.Errorf("%w; give --namespace: there is one in %s", cause, strings.Join(namespaces, ", "))
}
