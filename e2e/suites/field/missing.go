package field

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/pkg/layout"
)

// checkNothingMissing fails where something that a restore was asked for is neither there nor spoken of: objects, the volumes of claims, and the
// rights of accounts.
func (r *run) checkNothingMissing(o *velerov1.Restore, results joblog.Results, log string) {
	r.t.Helper()
	said := strings.Join(slices.Concat(listMessages(&results.Warnings), listMessages(&results.Errors)), "\n")
	namespaces := map[string]bool{}
	if !selectsObjects(&o.Spec) && o.Annotations[holdfast.AnnotationItems] == "" {
		for apiKind, names := range r.readResourceList(layout.BackupResourceList(o.Spec.BackupName)) {
			for _, name := range names {
				r.checkObject(o, apiKind, name, said+"\n"+log, namespaces)
			}
		}
	}
	for namespace := range namespaces {
		r.checkClaims(namespace, said)
	}
	for source, target := range o.Spec.NamespaceMapping {
		r.checkAccounts(source, target, said)
	}
}

// selectsObjects reports whether a Restore leaves out objects of the namespaces that it takes.
func selectsObjects(spec *velerov1.RestoreSpec) bool {
	return len(spec.IncludedResources)+len(spec.ExcludedResources)+len(spec.OrLabelSelectors) > 0 || spec.LabelSelector != nil ||
		spec.IncludeClusterResources != nil || spec.ResourceModifier != nil
}

// checkObject looks for an object of the backup, under the namespace that it is mapped to.
func (r *run) checkObject(o *velerov1.Restore, apiKind, name, said string, namespaces map[string]bool) {
	r.t.Helper()
	namespace, short, namespaced := strings.Cut(name, "/")
	i := strings.LastIndex(apiKind, "/")
	gv, err := schema.ParseGroupVersion(apiKind[:i])
	require.NoError(r.t, err)
	kind := gv.WithKind(apiKind[i+1:])
	if !namespaced {
		namespace, short = "", name
	}
	of := namespace
	if kind.GroupKind() == (schema.GroupKind{Kind: "Namespace"}) {
		of = short
	}
	if of == "" || !takesNamespace(&o.Spec, of) {
		return
	}
	if target := o.Spec.NamespaceMapping[of]; target != "" {
		if namespaced {
			namespace = target
		} else {
			short = target
		}
		of = target
	}
	namespaces[of] = true
	if kind.Kind == "Event" || isNamed(said, name[strings.Index(name, "/")+1:]) {
		return
	}
	r.awaitCondition("an object that nothing was said of", func(ctx context.Context) error { return r.checkLive(ctx, kind, namespace, short) })
}

// isNamed reports whether a warning, an error, or a line of the log that says why an object is left out names it.
func isNamed(said, name string) bool {
	for line := range strings.Lines(said) {
		if strings.Contains(line, name) && !strings.Contains(line, "created") && !strings.Contains(line, "unchanged") {
			return true
		}
	}
	return false
}

func takesNamespace(spec *velerov1.RestoreSpec, namespace string) bool {
	return !slices.Contains(spec.ExcludedNamespaces, namespace) &&
		(len(spec.IncludedNamespaces) == 0 || slices.Contains(spec.IncludedNamespaces, namespace) || slices.Contains(spec.IncludedNamespaces, "*"))
}

func (r *run) checkLive(ctx context.Context, kind schema.GroupVersionKind, namespace, name string) error {
	mapping, err := r.mapKind(func(mapper meta.RESTMapper) (*meta.RESTMapping, error) {
		mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if meta.IsNoMatchError(err) {
			mapping, err = mapper.RESTMapping(kind.GroupKind())
		}
		return mapping, err
	})
	if err != nil {
		return err
	}
	_, err = r.resolveMapping(mapping, namespace, name).resourceClient().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("%s %s/%s: %w", kind.Kind, namespace, name, err)
	}
	return nil
}

// checkClaims waits until each claim of a namespace is bound, or a warning names it. A claim that waits for its first consumer or for a provisioner
// waits rightly.
func (r *run) checkClaims(namespace, said string) {
	r.t.Helper()
	r.awaitCondition("claims that nothing was said of", func(ctx context.Context) error {
		claims := &corev1.PersistentVolumeClaimList{}
		if err := r.Client.List(ctx, claims, client.InNamespace(namespace)); err != nil {
			return err
		}
		for i := range claims.Items {
			claim := &claims.Items[i]
			if claim.Status.Phase == corev1.ClaimBound || isNamed(said, claim.Name) {
				continue
			}
			class := &storagev1.StorageClass{}
			if name := claim.Spec.StorageClassName; name == nil || *name == "" || claim.Spec.VolumeName != "" || r.Client.Get(ctx, client.ObjectKey{Name: *name}, class) != nil {
				return fmt.Errorf("PersistentVolumeClaim %s/%s is %s", namespace, claim.Name, claim.Status.Phase)
			}
		}
		return nil
	})
}

// checkAccounts looks for bindings in which an account of the source stands without that of the target.
func (r *run) checkAccounts(source, target, said string) {
	r.t.Helper()
	bindings := &rbacv1.ClusterRoleBindingList{}
	require.NoError(r.t, r.Client.List(r.t.Context(), bindings))
	inTarget := &rbacv1.RoleBindingList{}
	if err := r.Client.List(r.t.Context(), inTarget, client.InNamespace(target)); !apierrors.IsNotFound(err) {
		require.NoError(r.t, err)
	}
	subjects := map[string][]rbacv1.Subject{}
	for i := range bindings.Items {
		subjects[bindings.Items[i].Name] = bindings.Items[i].Subjects
	}
	for i := range inTarget.Items {
		subjects[target+"/"+inTarget.Items[i].Name] = inTarget.Items[i].Subjects
	}
	for name, of := range subjects {
		for _, s := range of {
			mapped := s
			mapped.Namespace = target
			if s.Kind == rbacv1.ServiceAccountKind && s.Namespace == source && !slices.Contains(of, mapped) && r.hasAccount(mapped) {
				require.True(r.t, isNamed(said, name), "binding %s has %s of %s, not of %s, and nothing says so", name, s.Name, source, target)
			}
		}
	}
}

func (r *run) hasAccount(s rbacv1.Subject) bool {
	return r.Client.Get(r.t.Context(), client.ObjectKey{Namespace: s.Namespace, Name: s.Name}, &corev1.ServiceAccount{}) == nil
}
