package references

import (
	"bytes"
	"embed"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-io/holdfast/e2e/harness/site"
)

//go:embed testdata/*.yaml
var testdata embed.FS

// clusters are those of Cluster API, and whether their owner has paused them.
var clusters = map[string]bool{"red": false, "blue": true}

// estate is what was in the cluster when it was backed up.
type estate struct {
	spaces map[string][]*unstructured.Unstructured // by namespaces
	kinds  map[schema.GroupVersionKind]bool
}

// readEstate reads the objects of testdata. Owners come before what they own, without their UIDs.
func readEstate(t *testing.T) *estate {
	t.Helper()
	e := &estate{spaces: map[string][]*unstructured.Unstructured{}, kinds: map[schema.GroupVersionKind]bool{}}
	for _, namespace := range []string{"machines", "certificates", "databases"} {
		e.readFile(t, namespace, namespace)
	}
	for name, paused := range clusters {
		e.readFile(t, "machines", "cluster", "NAME", name, "PAUSED", strconv.FormatBool(paused))
	}
	return e
}

func (e *estate) readFile(t *testing.T, namespace, file string, replace ...string) {
	t.Helper()
	text, err := testdata.ReadFile("testdata/" + file + ".yaml")
	require.NoError(t, err)
	text = []byte(strings.NewReplacer(replace...).Replace(string(text)))
	for document := range bytes.SplitSeq(text, []byte("\n---\n")) {
		object := &unstructured.Unstructured{}
		require.NoError(t, yaml.Unmarshal(document, &object.Object), file)
		object.SetNamespace(namespace)
		e.spaces[namespace] = append(e.spaces[namespace], object)
		e.kinds[object.GroupVersionKind()] = true
	}
}

// nameOf is how the tests call an object of a namespace.
func nameOf(object client.Object) string {
	return object.GetObjectKind().GroupVersionKind().Kind + " " + object.GetName()
}

// createObjects creates the namespaces with all objects.
func (e *estate) createObjects(t *testing.T, s *site.Site) {
	t.Helper()
	for namespace, objects := range e.spaces {
		s.Namespace(t, namespace)
		uids := map[string]types.UID{}
		for _, object := range objects {
			live := object.DeepCopy()
			owners := live.GetOwnerReferences()
			for i := range owners {
				owners[i].UID = uids[owners[i].Kind+" "+owners[i].Name]
			}
			live.SetOwnerReferences(owners)
			createWhenServed(t, s.Client, live)
			uids[nameOf(live)] = live.GetUID()
		}
	}
}

// destroy deletes all objects, then the namespaces, and waits until these are gone.
func (e *estate) destroy(t *testing.T, s *site.Site) {
	t.Helper()
	for namespace := range e.spaces {
		for kind := range e.kinds {
			object := &unstructured.Unstructured{}
			object.SetGroupVersionKind(kind)
			require.NoError(t, s.Client.DeleteAllOf(t.Context(), object, client.InNamespace(namespace)), kind.Kind)
		}
		require.NoError(t, s.Client.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))
	}
	for namespace := range e.spaces {
		require.Eventually(t, func() bool {
			return apierrors.IsNotFound(s.Client.Get(t.Context(), client.ObjectKey{Name: namespace}, &corev1.Namespace{}))
		}, site.Patience, site.Look, "namespace %s goes", namespace)
	}
}

// listObjects returns the objects that are in a namespace now, by their names.
func (e *estate) listObjects(t *testing.T, s *site.Site, namespace string) map[string]*unstructured.Unstructured {
	t.Helper()
	live := map[string]*unstructured.Unstructured{}
	for kind := range e.kinds {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind)
		require.NoError(t, s.Client.List(t.Context(), list, client.InNamespace(namespace)))
		for i := range list.Items {
			live[nameOf(&list.Items[i])] = &list.Items[i]
		}
	}
	return live
}

// faults compares what is in the cluster now with what was there: objects that are missing, and owner references
// that are not those to the objects that are there now.
func (e *estate) faults(t *testing.T, s *site.Site) (found []string) {
	t.Helper()
	for namespace, objects := range e.spaces {
		live := e.listObjects(t, s, namespace)
		for _, object := range objects {
			restored := live[nameOf(object)]
			if restored == nil {
				found = append(found, nameOf(object)+" is missing")
				continue
			}
			owners := object.GetOwnerReferences()
			for i := range owners {
				if owner := live[owners[i].Kind+" "+owners[i].Name]; owner != nil {
					owners[i].UID = owner.GetUID()
				}
			}
			if got := restored.GetOwnerReferences(); fmt.Sprint(ownerTexts(owners)) != fmt.Sprint(ownerTexts(got)) {
				found = append(found, fmt.Sprintf("%s has the owners %v, not %v", nameOf(object), ownerTexts(got), ownerTexts(owners)))
			}
		}
	}
	return found
}

func ownerTexts(owners []metav1.OwnerReference) map[string]bool {
	texts := map[string]bool{}
	for _, o := range owners {
		texts[fmt.Sprintf("%s %s %s %s %t", o.APIVersion, o.Kind, o.Name, o.UID, o.Controller != nil && *o.Controller)] = true
	}
	return texts
}
