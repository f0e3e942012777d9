package builtin

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
)

var (
	clusterRoleBindings = schema.GroupResource{Group: "rbac.authorization.k8s.io", Resource: "clusterrolebindings"}
	clusterRoles        = schema.GroupResource{Group: "rbac.authorization.k8s.io", Resource: "clusterroles"}
)

// serviceAccount names a ServiceAccount.
type serviceAccount struct{ namespace, name string }

// bindings holds for each ServiceAccount the ClusterRoleBindings that name it and their
// ClusterRoles. They are read once, when the first account is asked for.
type bindings struct {
	of *lazyValue[map[serviceAccount][]action.Item]
}

func newBindings(lister Lister) bindings {
	return bindings{newLazy(func(ctx context.Context) (map[serviceAccount][]action.Item, error) {
		of := map[serviceAccount][]action.Item{}
		err := lister.Each(ctx, clusterRoleBindings, "", "", func(o *action.Object) error { return addBinding(of, o) })
		if err != nil {
			return nil, fmt.Errorf("read ClusterRoleBindings: %w", err)
		}
		for a, items := range of {
			slices.SortFunc(items, func(x, y action.Item) int {
				return cmp.Or(cmp.Compare(x.Resource, y.Resource), cmp.Compare(x.Name, y.Name))
			})
			of[a] = uniqueElements(items)
		}
		return of, nil
	})}
}

// addBinding notes a ClusterRoleBinding and its role for the accounts it names.
func addBinding(of map[serviceAccount][]action.Item, o *action.Object) error {
	content, err := o.Content()
	if err != nil {
		return err
	}
	name, _, err := textAt(content, "metadata", "name")
	if err != nil {
		return err
	}
	items := []action.Item{{GroupResource: clusterRoleBindings, Name: name}}
	role, _, err := textAt(content, "roleRef", "name")
	if err != nil {
		return fmt.Errorf("%s: %w", items[0], err)
	}
	if role != "" {
		items = append(items, action.Item{GroupResource: clusterRoles, Name: role})
	}
	err = eachObject(content, func(subject object) error {
		a, err := boundAccount(subject)
		if err == nil && a.name != "" {
			of[a] = append(of[a], items...)
		}
		return err
	}, "subjects")
	if err != nil {
		return fmt.Errorf("%s: %w", items[0], err)
	}
	return nil
}

// boundAccount returns the ServiceAccount that a subject is, the zero account for other subjects.
// Groups, which may have accounts as members, bind whole namespaces and are no matter of one
// account.
func boundAccount(subject object) (serviceAccount, error) {
	kind, _, err := textAt(subject, "kind")
	if err != nil || kind != "ServiceAccount" {
		return serviceAccount{}, err
	}
	namespace, _, err := textAt(subject, "namespace")
	if err != nil {
		return serviceAccount{}, err
	}
	name, _, err := textAt(subject, "name")
	return serviceAccount{namespace, name}, err
}

// itemsOfAccount returns what belongs to the account.
func (b bindings) itemsOfAccount(ctx context.Context, o *action.Object) ([]action.Item, error) {
	id, err := o.Identity()
	if err != nil {
		return nil, err
	}
	of, err := b.of.getValue(ctx)
	return slices.Clone(of[serviceAccount{id.Namespace, id.Name}]), err
}
