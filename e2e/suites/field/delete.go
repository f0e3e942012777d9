package field

import (
	"context"
	"fmt"
	"time"

	"github.com/stretchr/testify/require"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/site"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

const definitionKind = "CustomResourceDefinition"

// deleteNow deletes at once: no kubelet confirms the deletion of a Pod that has a node.
var deleteNow = metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground), GracePeriodSeconds: new(int64)}

// deleteObjects deletes objects, one after another, and waits until they are gone. With force it removes their finalizers.
func (r *run) deleteObjects(texts []string, force bool) {
	for _, text := range texts {
		ref, err := r.resolveText(text, false)
		require.NoError(r.t, err, text)
		if ref.kind.Kind == definitionKind {
			r.backups.runDeletion(func() { r.deleteDefinition(ref, force) })
		} else {
			r.deleteObject(ref, force)
		}
	}
}

func (r *run) deleteObject(ref *reference, force bool) {
	require.NoError(r.t, client.IgnoreNotFound(ref.resourceClient().Delete(r.t.Context(), ref.name, deleteNow)), ref.name)
	r.awaitGone(ref, force)
}

// deleteDefinition waits until no backup of a Schedule or of the command-line tool runs either.
func (r *run) deleteDefinition(ref *reference, force bool) {
	r.awaitCondition("no backup runs", func(ctx context.Context) error {
		list := &velerov1.BackupList{}
		err := r.Client.List(ctx, list, client.InNamespace(site.Server))
		for i := range list.Items {
			if list.Items[i].Status.Phase == velerov1.BackupPhaseInProgress {
				err = fmt.Errorf("backup %s runs", list.Items[i].Name)
			}
		}
		return err
	})
	r.deleteObject(ref, force)
}

// awaitGone waits until a deleted object is gone. What a deleted Namespace holds goes with it at once, which its controller would begin with after
// five seconds.
func (r *run) awaitGone(ref *reference, force bool) {
	what := ref.kind.Kind + " " + ref.name
	r.awaitCondition(what+" goes", func(ctx context.Context) error {
		live, err := ref.resourceClient().Get(ctx, ref.name, metav1.GetOptions{})
		if err == nil && force {
			_, err = ref.resourceClient().Patch(ctx, ref.name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		}
		if err == nil && ref.isNamespace() {
			err = r.finalizeNamespace(ctx, live)
		}
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return err
		}
		return fmt.Errorf("%s is still there", what)
	})
}

// finalizeNamespace does the work of the controller of Namespaces: it deletes every object of a Namespace that is being deleted, and lets the Namespace
// go once none is left. It does so only before the controller begins, five seconds after the deletion: the controller, which deletes by the name of
// the Namespace, would go on in the one that a restore makes.
func (r *run) finalizeNamespace(ctx context.Context, live *unstructured.Unstructured) error {
	if isLeftToController(live) {
		return nil
	}
	lists, err := r.discovery.ServerPreferredResources()
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		return err
	}
	var left []string
	for _, list := range discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"deletecollection", "list"}}, lists) {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return err
		}
		for i := range list.APIResources {
			of := &list.APIResources[i]
			// Events are in the core group, too, and Velero's kinds in the server's namespace.
			if !of.Namespaced || gv.Group == eventsv1.GroupName || gv.Group == velerov1.GroupVersion.Group {
				continue
			}
			empty, err := emptyCollection(ctx, r.dynamic.Resource(gv.WithResource(of.Name)).Namespace(live.GetName()))
			if err != nil {
				return err
			}
			if !empty {
				left = append(left, of.Name)
			}
		}
	}
	if len(left) > 0 {
		return fmt.Errorf("there are %v in namespace %s", left, live.GetName())
	}
	if isLeftToController(live) {
		return nil
	}
	unstructured.RemoveNestedField(live.Object, "spec", "finalizers")
	if _, err := r.dynamic.Resource(namespaces).Update(ctx, live, metav1.UpdateOptions{}, "finalize"); err != nil {
		return err
	}
	_, err = r.dynamic.Resource(namespaces).Get(ctx, live.GetName(), metav1.GetOptions{})
	return err
}

// isLeftToController reports that the controller of Namespaces begins soon, or has begun.
func isLeftToController(live *unstructured.Unstructured) bool {
	deleted := live.GetDeletionTimestamp()
	return deleted == nil || time.Since(deleted.Time) > 4*time.Second
}

// emptyCollection deletes the objects of a collection, and reports whether none is left.
func emptyCollection(ctx context.Context, of dynamic.ResourceInterface) (bool, error) {
	for _, again := range []bool{true, false} {
		found, err := of.List(ctx, metav1.ListOptions{Limit: 1})
		if err != nil || len(found.Items) == 0 {
			return err == nil || apierrors.IsNotFound(err), client.IgnoreNotFound(err) // a definition may go meanwhile
		}
		if again {
			if err := of.DeleteCollection(ctx, deleteNow, metav1.ListOptions{}); err != nil {
				return false, err
			}
		}
	}
	return false, nil
}
