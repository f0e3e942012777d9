package compare

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// Scope is which objects belong to a snapshot.
type Scope struct {
	Namespaces []string // every object of every kind in these namespaces
	Selector   string   // cluster-scoped objects with these labels; empty means none
}

// Take reads every object of the scope from the API server: every kind that discovery names and
// that can be listed. A kind or group that cannot be read is an error, so that nothing is
// overlooked.
func Take(ctx context.Context, config *rest.Config, scope Scope) (*Snapshot, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.WarningHandler = -1, rest.NoWarnings{} // deprecated kinds are read on purpose
	discoverer, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	lists, err := discoverer.ServerPreferredResources()
	if err != nil {
		return nil, fmt.Errorf("discover kinds: %w", err)
	}
	t := &snapshotTaker{client: client, scope: scope, rules: Ignored()}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(8)
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, fmt.Errorf("discover kinds: %w", err)
		}
		for _, resource := range list.APIResources {
			if slices.Contains(resource.Verbs, "list") {
				group.Go(func() error { return t.takeResource(ctx, version.WithResource(resource.Name), resource.Namespaced) })
			}
		}
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return t.takeSnapshot()
}

// snapshotTaker collects objects from parallel lists.
type snapshotTaker struct {
	client dynamic.Interface
	scope  Scope
	rules  []Rule

	mutex   sync.Mutex
	objects []unstructured.Unstructured
}

func (t *snapshotTaker) takeResource(ctx context.Context, resource schema.GroupVersionResource, namespaced bool) error {
	client := t.client.Resource(resource)
	if !namespaced {
		return t.takeCluster(ctx, client, resource)
	}
	for _, namespace := range t.scope.Namespaces {
		if err := t.takePages(ctx, client.Namespace(namespace), metav1.ListOptions{}, resource); err != nil {
			return err
		}
	}
	return nil
}

func (t *snapshotTaker) takeCluster(ctx context.Context, client dynamic.ResourceInterface, resource schema.GroupVersionResource) error {
	if t.scope.Selector == "" {
		return nil
	}
	return t.takePages(ctx, client, metav1.ListOptions{LabelSelector: t.scope.Selector}, resource)
}

func (t *snapshotTaker) takePages(ctx context.Context, client dynamic.ResourceInterface, options metav1.ListOptions, resource schema.GroupVersionResource) error {
	options.Limit = 500
	for {
		list, err := client.List(ctx, options)
		if apierrors.IsNotFound(err) {
			return nil // the kind went away after discovery: so did its objects
		}
		if err != nil {
			return fmt.Errorf("list %s: %w", resource, err)
		}
		t.mutex.Lock()
		t.objects = append(t.objects, list.Items...)
		t.mutex.Unlock()
		if options.Continue = list.GetContinue(); options.Continue == "" {
			return nil
		}
	}
}

func (t *snapshotTaker) takeSnapshot() (*Snapshot, error) {
	s := &Snapshot{Objects: make(map[Key]map[string]any, len(t.objects)), Excluded: map[string]int{}}
	live := make(map[Key]types.UID, len(t.objects))
	seen := map[types.UID]bool{} // one object may be served by several groups
	var kept []unstructured.Unstructured
	for _, object := range t.objects {
		if seen[object.GetUID()] && object.GetUID() != "" {
			continue
		}
		seen[object.GetUID()] = true
		if why := excludedReason(&object); why != "" {
			s.Excluded[why]++
			continue
		}
		live[keyOf(&object)] = object.GetUID()
		kept = append(kept, object)
	}
	for _, object := range kept {
		normalizeObject(object.Object, t.rules, live)
		same, err := canonicalObject(object.Object)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", keyOf(&object), err)
		}
		s.Objects[keyOf(&object)] = same
	}
	return s, nil
}

func keyOf(object *unstructured.Unstructured) Key {
	return Key{
		Group: object.GroupVersionKind().Group, Kind: object.GetKind(), Namespace: object.GetNamespace(), Name: object.GetName(),
	}
}

// Kinds returns how many objects of each kind the snapshot holds.
func (s *Snapshot) Kinds() map[string]int {
	kinds := map[string]int{}
	for key := range maps.Keys(s.Objects) {
		kinds[key.Kind]++
	}
	return kinds
}
