package backup

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	manifestv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/manifest/v1"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/command"
)

// pageSize is the largest page of items that the service gives.
const pageSize = 1000

// ContentOptions are what the commands that look into a backup share.
type ContentOptions struct {
	*command.Global
	Remote command.RemoteOptions
	// Namespace is that of the objects, not the server's.
	Namespace string

	conn grpc.ClientConnInterface
	api  manifestv1.ManifestServiceClient
}

func newContentOptions(g *command.Global) ContentOptions {
	return ContentOptions{Global: g, Remote: command.RemoteManifests()}
}

// bindFlags adds the shared flags. --namespace hides the global flag of that name: the service knows its own
// namespace.
func (o *ContentOptions) bindFlags(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&o.Namespace, "namespace", "n", "", "namespace of the objects, not of the server")
	o.Remote.BindFlags(cmd.Flags())
	o.completeNamespaces(cmd)
}

// withConnection connects for the time of run, and makes its error one for people.
func (o *ContentOptions) withConnection(run func() error) error {
	conn, err := o.Remote.Connect(o.Global)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // nothing is lost with it
	o.conn = patientConn{conn, o.Global}
	o.api = manifestv1.NewManifestServiceClient(o.conn)
	return nameFlag(o.Remote.Explain(run()))
}

// flagNames are the flags of the fields of requests.
var flagNames = map[string]string{
	"kinds": "kind", "name": "name", "namespace": "namespace", "label_selector": "selector", "annotations": "annotation", "owner": "owner",
	"uid": "uid", "hash": "hash",
}

// nameFlag has the error of a field name the flag that the field comes from.
func nameFlag(err error) error {
	field := new(errgrpc.FieldError)
	if !errors.As(err, &field) {
		return err
	}
	name, _, _ := strings.Cut(field.Field, "[")
	if flag := flagNames[name]; flag != "" {
		return fmt.Errorf("--%s: %s", flag, field.Message)
	}
	return err
}

// eachItem calls do for the items that a request selects, page by page, and tells how far it is.
func (o *ContentOptions) eachItem(ctx context.Context, req *manifestv1.ListItemsRequest, do func(*manifestv1.Item) error) error {
	notice := command.NewNotice(o.Global)
	defer notice.End()
	found := 0
	req.PageSize = pageSize
	for more := true; more; more = req.GetPageToken() != "" {
		page, err := o.api.ListItems(ctx, req)
		if err != nil {
			return err
		}
		for _, item := range page.GetItems() {
			if err := do(item); err != nil {
				return err
			}
		}
		found += len(page.GetItems())
		notice.Show(fmt.Sprintf("%d objects found, still reading", found))
		req.PageToken = page.GetNextPageToken()
	}
	return nil
}

// splitItemName reads "KIND/NAME".
func splitItemName(arg string) (kind, name string, err error) {
	kind, name, _ = strings.Cut(arg, "/")
	if kind == "" || name == "" {
		return "", "", fmt.Errorf("%q is not of the form KIND/NAME", arg)
	}
	return kind, name, nil
}
