package seed

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Apply creates the sample estate and returns how many objects it created, once the controllers
// have made what they make of it (Pods, ReplicaSets, bound claims, …). An object that exists
// already is an error: the estate is not mixed with existing objects.
func Apply(ctx context.Context, config *rest.Config, options Options) (int, error) {
	options = options.withDefaults()
	c, err := newClient(config)
	if err != nil {
		return 0, err
	}
	a := &estateApplier{client: c, options: options}
	if err := a.runApplier(ctx); err != nil {
		return int(a.created.Load()), fmt.Errorf("seed the estate: %w", err)
	}
	return int(a.created.Load()), nil
}

func newClient(config *rest.Config) (client.Client, error) {
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return nil, err
	}
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	config.QPS, config.WarningHandler = -1, rest.NoWarnings{} // deprecated kinds are read on purpose
	return client.New(config, client.Options{Scheme: scheme})
}

// estateApplier creates the estate's objects and counts them.
type estateApplier struct {
	client  client.Client
	options Options
	created atomic.Int64
}

func (a *estateApplier) runApplier(ctx context.Context) error {
	namespaces := a.options.Namespaces()
	first := clusterWide(a.options.Prefix)
	for _, name := range namespaces {
		first = append(first, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: withLabels(), Annotations: map[string]string{Group + "/text": awkwardText},
		}})
	}
	definitions := customDefinitions()
	for _, definition := range definitions {
		first = append(first, definition)
	}
	if err := a.createObjects(ctx, first); err != nil {
		return err
	}
	var second, third []client.Object
	for _, namespace := range namespaces {
		second = append(second, accessObjects(namespace)...)
		second = append(second, configObjects(namespace)...)
		second = append(second, storageObjects(namespace, a.options.Prefix)...)
		third = append(third, workloadObjects(namespace, a.options.Prefix)...)
		third = append(third, policyObjects(namespace)...)
	}
	second = append(second, oddObjects(namespaces[0])...)
	for _, objects := range [][]client.Object{second, third} {
		if err := a.createObjects(ctx, objects); err != nil {
			return err
		}
	}
	if err := a.waitEstablished(ctx, definitions); err != nil {
		return err
	}
	if err := a.plantTree(ctx, ownershipTree(a.options.Prefix, namespaces)); err != nil {
		return err
	}
	return WaitSettled(ctx, a.client, namespaces)
}

// createObjects creates objects in parallel.
func (a *estateApplier) createObjects(ctx context.Context, objects []client.Object) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(a.options.Writers)
	for _, object := range objects {
		group.Go(func() error { return a.createObject(ctx, object) })
	}
	return group.Wait()
}

func (a *estateApplier) createObject(ctx context.Context, object client.Object) error {
	if err := a.client.Create(ctx, object); err != nil {
		return fmt.Errorf("create %T %s/%.80q: %w", object, object.GetNamespace(), object.GetName(), err)
	}
	if n := a.created.Add(1); n%250 == 0 {
		_, _ = fmt.Fprintf(a.options.Log, "%d objects created\n", n)
	}
	return nil
}

// plantTree creates a tree of owners from the root down, siblings in parallel.
func (a *estateApplier) plantTree(ctx context.Context, root ownerTree) error {
	if err := a.createObject(ctx, root.object); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, child := range root.children {
		child.object.SetOwnerReferences([]metav1.OwnerReference{ownedBy(root.object)})
		group.Go(func() error { return a.plantTree(ctx, child) })
	}
	return group.Wait()
}

func (a *estateApplier) waitEstablished(ctx context.Context, definitions []*apiextensionsv1.CustomResourceDefinition) error {
	for _, definition := range definitions {
		err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
			var live apiextensionsv1.CustomResourceDefinition
			if err := a.client.Get(ctx, client.ObjectKeyFromObject(definition), &live); err != nil {
				return false, err
			}
			for _, condition := range live.Status.Conditions {
				if condition.Type == apiextensionsv1.Established && condition.Status == apiextensionsv1.ConditionTrue {
					return true, nil
				}
			}
			return false, nil
		})
		if err != nil {
			return fmt.Errorf("wait for %s: %w", definition.Name, err)
		}
	}
	return nil
}
