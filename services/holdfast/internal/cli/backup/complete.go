package backup

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	manifestv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/manifest/v1"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/command"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/job"
)

// askNames returns what ask finds within the time that a shell waits; a service that does not answer offers nothing.
func (o *ContentOptions) askNames(cmd *cobra.Command, ask func(context.Context) ([]string, error)) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), job.CompleteTimeout)
	defer cancel()
	var names []string
	err := o.withConnection(func() (err error) {
		names, err = ask(ctx)
		return err
	})
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeNamespaces has shells offer the namespaces of the backup.
func (o *ContentOptions) completeNamespaces(cmd *cobra.Command) {
	_ = cmd.RegisterFlagCompletionFunc("namespace", func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) { // the flag exists
		return o.askNames(cmd, func(ctx context.Context) (names []string, err error) {
			m, err := o.readManifest(ctx, args, true)
			for _, n := range m.GetNamespaces() {
				if n.GetNamespace() != "" {
					names = append(names, n.GetNamespace())
				}
			}
			return names, err
		})
	})
}

func (o *ContentOptions) readManifest(ctx context.Context, args []string, namespaces bool) (*manifestv1.GetManifestResponse, error) {
	if len(args) == 0 {
		return nil, nil //nolint:nilnil // nothing to offer
	}
	return o.api.GetManifest(ctx, &manifestv1.GetManifestRequest{Backup: args[0], WithNamespaces: namespaces})
}

// readKinds returns the kinds of a backup as people name them, each with a suffix.
func (o *ContentOptions) readKinds(ctx context.Context, args []string, suffix string) (names []string, err error) {
	m, err := o.readManifest(ctx, args, false)
	for _, k := range m.GetKinds() {
		name := k.GetResource()
		if k.GetGroup() != "" {
			name += "." + k.GetGroup()
		}
		names = append(names, name+suffix)
	}
	return names, err
}

// completeKinds has shells offer the kinds of the backup.
func (o *ContentOptions) completeKinds(cmd *cobra.Command) {
	_ = cmd.RegisterFlagCompletionFunc("kind", func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) { // the flag exists
		return o.askNames(cmd, func(ctx context.Context) ([]string, error) { return o.readKinds(ctx, args, "") })
	})
}

// completeItem offers backups, then kinds of the backup, then its objects of a kind in the namespace.
func (o *ContentOptions) completeItem(backups cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		switch {
		case len(args) == 0:
			return backups(cmd, args, typed)
		case len(args) > 1:
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return o.completeObject(cmd, args, typed)
	}
}

// CompleteItems offers kinds of a backup, then its objects of a kind in a namespace, for a command that other
// flags than ContentOptions give both.
func CompleteItems(g *command.Global, of func() (backup, namespace string)) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		o := newContentOptions(g)
		var backup string
		if backup, o.Namespace = of(); backup == "" {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return o.completeObject(cmd, []string{backup}, typed)
	}
}

// completeObject offers kinds of the backup that args begin with, then its objects of a kind in the namespace.
func (o *ContentOptions) completeObject(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	kind, name, named := strings.Cut(typed, "/")
	if !named {
		names, directive := o.askNames(cmd, func(ctx context.Context) ([]string, error) { return o.readKinds(ctx, args, "/") })
		return names, directive | cobra.ShellCompDirectiveNoSpace
	}
	return o.askNames(cmd, func(ctx context.Context) (names []string, err error) {
		page, err := o.api.ListItems(ctx, &manifestv1.ListItemsRequest{
			Backup: args[0], Kinds: []string{kind}, Namespace: o.Namespace, Name: name + "*", PageSize: pageSize,
		})
		for _, item := range page.GetItems() {
			names = append(names, kind+"/"+item.GetName())
		}
		return names, err
	})
}
