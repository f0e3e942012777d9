package operator

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Mark is the annotation that a stored object has, and one that a controller made in its place has
// not.
const Mark = "operator.test/stored"

// Estate is what was in the cluster when it was backed up.
type Estate struct {
	client     client.Client
	namespaces []string
	secrets    map[string]map[string][]byte // namespace/name -> data
	claims     map[string]bool
}

// Remember marks the Secrets and claims of the namespaces and notes what they hold.
func Remember(ctx context.Context, c client.Client, namespaces []string) (*Estate, error) {
	e := &Estate{client: c, namespaces: namespaces, secrets: map[string]map[string][]byte{}, claims: map[string]bool{}}
	for _, namespace := range namespaces {
		secrets, claims, err := e.listObjects(ctx, namespace)
		if err != nil {
			return nil, err
		}
		for i := range secrets {
			if err := e.markObject(ctx, &secrets[i]); err != nil {
				return nil, err
			}
			e.secrets[namespace+"/"+secrets[i].Name] = secrets[i].Data
		}
		for i := range claims {
			if err := e.markObject(ctx, &claims[i]); err != nil {
				return nil, err
			}
			e.claims[namespace+"/"+claims[i].Name] = true
		}
	}
	return e, nil
}

// Len is how many objects are remembered.
func (e *Estate) Len() int { return len(e.secrets) + len(e.claims) }

func (e *Estate) markObject(ctx context.Context, object client.Object) error {
	before, ok := object.DeepCopyObject().(client.Object)
	if !ok {
		return fmt.Errorf("%T is no object", object)
	}
	object.SetAnnotations(map[string]string{Mark: "yes"})
	return e.client.Patch(ctx, object, client.MergeFrom(before))
}

func (e *Estate) listObjects(ctx context.Context, namespace string) ([]corev1.Secret, []corev1.PersistentVolumeClaim, error) {
	var secrets corev1.SecretList
	if err := e.client.List(ctx, &secrets, client.InNamespace(namespace)); err != nil {
		return nil, nil, fmt.Errorf("list the secrets of %s: %w", namespace, err)
	}
	var claims corev1.PersistentVolumeClaimList
	if err := e.client.List(ctx, &claims, client.InNamespace(namespace)); err != nil {
		return nil, nil, fmt.Errorf("list the claims of %s: %w", namespace, err)
	}
	return secrets.Items, claims.Items, nil
}

// Lost compares the cluster with what was stored: what is missing, what a controller made in place
// of a stored object, and Secrets with other data.
func (e *Estate) Lost(ctx context.Context) ([]string, error) {
	missing := map[string]string{}
	for name := range e.secrets {
		missing["secret "+name] = "missing"
	}
	for name := range e.claims {
		missing["claim "+name] = "missing"
	}
	for _, namespace := range e.namespaces {
		secrets, claims, err := e.listObjects(ctx, namespace)
		if err != nil {
			return nil, err
		}
		for _, s := range secrets {
			name := namespace + "/" + s.Name
			switch {
			case !maps.EqualFunc(s.Data, e.secrets[name], slices.Equal):
				missing["secret "+name] = "has other data"
			case s.Annotations[Mark] == "":
				missing["secret "+name] = "was made by a controller"
			default:
				delete(missing, "secret "+name)
			}
		}
		for _, c := range claims {
			name := namespace + "/" + c.Name
			if c.Annotations[Mark] == "" {
				missing["claim "+name] = "was made by a controller"
				continue
			}
			delete(missing, "claim "+name)
		}
	}
	var lost []string
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		lost = append(lost, name+" "+missing[name])
	}
	return lost, nil
}

// Unowned returns the objects whose owner references are not those that the operator's objects
// have, rewritten to the Stores that are in the cluster.
func (e *Estate) Unowned(ctx context.Context) ([]string, error) {
	var wrong []string
	for _, namespace := range e.namespaces {
		stores := &unstructured.UnstructuredList{}
		stores.SetGroupVersionKind(storeGVK.GroupVersion().WithKind("StoreList"))
		if err := e.client.List(ctx, stores, client.InNamespace(namespace)); err != nil {
			return nil, fmt.Errorf("list the stores of %s: %w", namespace, err)
		}
		secrets, claims, err := e.listObjects(ctx, namespace)
		if err != nil {
			return nil, err
		}
		refs := map[string][]metav1.OwnerReference{}
		for _, s := range secrets {
			refs["secret "+s.Name] = s.OwnerReferences
		}
		for _, c := range claims {
			refs["claim "+c.Name] = c.OwnerReferences
		}
		for i, store := range stores.Items {
			next := stores.Items[(i+1)%len(stores.Items)]
			name := store.GetName()
			for object, want := range map[string][]types.UID{
				"claim " + name + "-data":    {store.GetUID()},
				"secret " + name + "-tls":    {store.GetUID()},
				"secret " + name + "-shared": {store.GetUID(), next.GetUID()},
				"secret " + name + "-admin":  {},
			} {
				if !matchesOwners(refs[object], want) {
					wrong = append(wrong, fmt.Sprintf("%s/%s has %v", namespace, object, refs[object]))
				}
			}
		}
	}
	return wrong, nil
}

// matchesOwners reports whether refs lead to exactly the wanted Stores, once each. References to other
// kinds are a controller's own.
func matchesOwners(refs []metav1.OwnerReference, want []types.UID) bool {
	var got []types.UID
	for _, ref := range refs {
		if ref.Kind == storeGVK.Kind {
			got = append(got, ref.UID)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	return slices.Equal(got, want)
}

// UIDs returns the identity of every Secret, claim and Store.
func (e *Estate) UIDs(ctx context.Context) (map[types.UID]string, error) {
	out := map[types.UID]string{}
	for _, namespace := range e.namespaces {
		secrets, claims, err := e.listObjects(ctx, namespace)
		if err != nil {
			return nil, err
		}
		for _, s := range secrets {
			out[s.UID] = "secret " + namespace + "/" + s.Name
		}
		for _, c := range claims {
			out[c.UID] = "claim " + namespace + "/" + c.Name
		}
	}
	return out, nil
}
