package backup

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	manifestv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/manifest/v1"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/command"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/job"
)

const (
	// maxWholeTree is the largest backup that is drawn whole without being asked for a part of it.
	maxWholeTree = 1000
	// maxReadTree is the largest backup that is read to draw a cluster-scoped object.
	maxReadTree = 100_000
)

// TreeOptions are the flags of `backup tree`.
type TreeOptions struct {
	ContentOptions
	Backup     string
	Kind, Name string
	Output     string
}

// NewTreeCommand returns `backup tree`.
func NewTreeCommand(g *command.Global, kind *job.Kind[*velerov1.Backup]) *cobra.Command {
	o := &TreeOptions{ContentOptions: newContentOptions(g)}
	cmd := &cobra.Command{
		Use:   "tree NAME [KIND/NAME]",
		Short: "Draw what the objects in a backup own and name",
		Long: `Draws what objects in a backup own, and what they name in their content: of one
object, of a namespace, or of the whole backup. Of a backup with more than 1000
objects only the namespaces are listed unless one of them is given. Each object
is drawn with what belongs to it once.`,
		Example: `  holdfast backup tree nightly -n shop
  holdfast backup tree nightly deploy/web -n shop
  holdfast backup tree nightly -n shop -o dot | dot -Tsvg > shop.svg`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.Complete(args); err != nil {
				return err
			}
			return o.withConnection(func() error { return o.Run(cmd.Context()) })
		},
	}
	cmd.ValidArgsFunction = o.completeItem(kind.CompleteNames(g))
	o.bindFlags(cmd)
	cmd.Flags().StringVarP(&o.Output, "output", "o", "", "how to draw: tree, dot (Graphviz) or mermaid")
	return cmd
}

// Complete reads the arguments.
func (o *TreeOptions) Complete(args []string) (err error) {
	if !slices.Contains([]string{"", "tree", "dot", "mermaid"}, o.Output) {
		return fmt.Errorf("--output: %q is none of tree, dot and mermaid", o.Output)
	}
	o.Backup = args[0]
	if len(args) > 1 {
		o.Kind, o.Name, err = splitItemName(args[1])
	}
	return err
}

// Run draws the tree.
func (o *TreeOptions) Run(ctx context.Context) error {
	if o.Kind == "" && o.Namespace == "" {
		m, err := o.api.GetManifest(ctx, &manifestv1.GetManifestRequest{Backup: o.Backup, WithNamespaces: true})
		if err != nil {
			return err
		}
		if m.GetItems() > maxWholeTree {
			return o.listNamespaces(m)
		}
	}
	graph, roots, err := o.readGraph(ctx)
	if err != nil {
		return err
	}
	if len(roots) == 0 {
		o.Printf("No objects in namespace %q of backup %q.\n", o.Namespace, o.Backup)
		return nil
	}
	w := bufio.NewWriter(o.Out)
	switch o.Output {
	case "dot":
		graph.writeDot(w, o.Backup, roots)
	case "mermaid":
		graph.writeMermaid(w, roots)
	default:
		(&treeWriter{w: w, graph: graph, drawn: map[*treeNode]bool{}, path: map[*treeNode]bool{}}).writeRoots(roots, o.Kind == "" && o.Namespace == "")
	}
	return w.Flush()
}

// checkSize refuses to read all of a very large backup.
func (o *TreeOptions) checkSize(ctx context.Context) error {
	if o.Namespace != "" {
		return nil
	}
	m, err := o.api.GetManifest(ctx, &manifestv1.GetManifestRequest{Backup: o.Backup})
	if err == nil && m.GetItems() > maxReadTree {
		err = fmt.Errorf("backup %[1]q holds %[2]d objects, too many for a tree: give --namespace, or list what the object owns and needs with \"holdfast backup related %[1]s %[3]s/%[4]s\"",
			o.Backup, m.GetItems(), o.Kind, o.Name)
	}
	return err
}

// listNamespaces is what is drawn of a backup that is too large.
func (o *TreeOptions) listNamespaces(m *manifestv1.GetManifestResponse) error {
	rows := make([][]string, 0, len(m.GetNamespaces()))
	for _, n := range m.GetNamespaces() {
		name := n.GetNamespace()
		if name == "" {
			name = "<none>"
		}
		rows = append(rows, []string{name, strconv.FormatInt(n.GetItems(), 10)})
	}
	if err := (&command.Output{}).PrintTable(o.Out, []string{"NAMESPACE", "OBJECTS"}, nil, rows); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(o.ErrOut, "Backup %q holds %d objects; give --namespace or KIND/NAME to draw a part of them.\n", o.Backup, m.GetItems())
	return nil
}

// readGraph reads the objects that may be drawn, and returns those that trees begin with.
func (o *TreeOptions) readGraph(ctx context.Context) (*treeGraph, []*treeNode, error) {
	req := &manifestv1.ListItemsRequest{Backup: o.Backup, Namespace: o.Namespace, WithClusterScoped: o.Namespace != ""}
	var root *manifestv1.Item
	if o.Kind != "" {
		resp, err := o.api.GetItem(ctx, &manifestv1.GetItemRequest{Backup: o.Backup, Kind: o.Kind, Namespace: o.Namespace, Name: o.Name})
		if err = errgrpc.FromStatus(err); errors.Is(err, errgrpc.ErrNotFound) && o.Namespace == "" {
			err = o.suggestNamespace(ctx, o.Backup, o.Kind, o.Name, err)
		}
		if err != nil {
			return nil, nil, err
		}
		root = resp.GetItem()
		if err := o.checkSize(ctx); err != nil {
			return nil, nil, err
		}
	}
	graph := newTreeGraph(o.Namespace)
	if err := o.eachItem(ctx, req, func(item *manifestv1.Item) error { graph.addItem(item); return nil }); err != nil {
		return nil, nil, err
	}
	graph.linkNodes()
	if root != nil {
		return graph, []*treeNode{graph.nodes[newTreeKey(root)]}, nil
	}
	return graph, graph.findRoots(), nil
}
