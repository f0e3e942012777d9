package job

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/command"
)

// PickOptions are the flags that choose the objects to delete. Exactly one way is used.
type PickOptions struct {
	Given    []string
	All      bool
	Selector string
	Confirm  bool
}

// BindFlags adds the flags.
func (o *PickOptions) BindFlags(fs *pflag.FlagSet, what string) {
	fs.BoolVar(&o.All, "all", false, "all "+what)
	fs.StringVarP(&o.Selector, "selector", "l", "", what+" whose labels match")
	fs.BoolVar(&o.Confirm, "confirm", false, "do not ask")
}

// Complete checks that there is exactly one way of choosing.
func (o *PickOptions) Complete(args []string) error {
	o.Given = args
	ways := 0
	for _, used := range []bool{len(args) > 0, o.All, o.Selector != ""} {
		if used {
			ways++
		}
	}
	if ways != 1 {
		return errors.New("give either names, --all or --selector")
	}
	return nil
}

// Names returns the names chosen; list is an empty list of the kind.
func (o *PickOptions) Names(ctx context.Context, c client.Client, namespace string, list client.ObjectList) ([]string, error) {
	if len(o.Given) > 0 {
		return o.Given, nil
	}
	selector, err := labels.Parse(o.Selector)
	if err != nil {
		return nil, fmt.Errorf("--selector: %w", err)
	}
	if err := c.List(ctx, list, client.InNamespace(namespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return nil, fmt.Errorf("list objects: %w", err)
	}
	var names []string
	err = meta.EachListItem(list, func(obj runtime.Object) error {
		accessor, err := meta.Accessor(obj)
		if err == nil {
			names = append(names, accessor.GetName())
		}
		return err
	})
	return names, err
}

// Confirmed reports whether the user agrees; --confirm agrees beforehand. An input that ends
// without an answer is a no.
func (o *PickOptions) Confirmed(g *command.Global, what string, names []string) bool {
	if o.Confirm {
		return true
	}
	g.Printf("Delete %s %s? This cannot be undone. [y/N] ", what, strings.Join(names, ", "))
	answer, err := bufio.NewReader(g.In).ReadString('\n')
	if err != nil && answer == "" {
		return false
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return true
	default:
		return false
	}
}
