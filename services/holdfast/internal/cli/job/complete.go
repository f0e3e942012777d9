package job

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/command"
)

// CompleteTimeout is how long a shell waits for what could be typed.
const CompleteTimeout = 2 * time.Second

// CompleteNames has shells offer the names of the objects of the kind that are not among the arguments. A
// cluster that does not answer offers nothing.
func (k *Kind[T]) CompleteNames(g *command.Global) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		s, err := Connect(g)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), CompleteTimeout)
		defer cancel()
		list := k.NewList()
		if err := s.Client.List(ctx, list, client.InNamespace(s.Namespace)); err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var names []string
		_ = meta.EachListItem(list, func(obj runtime.Object) error { // it returns what the function returns
			if entry, ok := obj.(T); ok && !slices.Contains(args, entry.GetName()) {
				names = append(names, entry.GetName())
			}
			return nil
		})
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// OneArg offers nothing after the first argument.
func OneArg(complete cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return complete(cmd, args, typed)
	}
}
