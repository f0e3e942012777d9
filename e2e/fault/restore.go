package fault

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/compare"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

const (
	small     = "fault-small" // a namespace with next to nothing in it
	kinds     = "fault-kinds" // a namespace with custom resources
	kindGroup = "fault.example.com"
	kindName  = "toys." + kindGroup
)

func (a *apiClient) defineKind(ctx context.Context) error {
	if err := a.createDefinition(ctx, "toys", "Toy"); err != nil {
		return err
	}
	if err := a.createObject(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: kinds}}); err != nil {
		return err
	}
	for i := range 3 {
		if err := a.createServed(ctx, newToy(kinds, fmt.Sprintf("toy-%d", i))); err != nil {
			return err
		}
	}
	return nil
}

// createDefinition makes a kind of custom resource with any fields.
func (a *apiClient) createDefinition(ctx context.Context, plural, kind string) error {
	open := true
	return a.createObject(ctx, &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plural + "." + kindGroup},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: kindGroup, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Singular: strings.ToLower(kind), Kind: kind, ListKind: kind + "List"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", XPreserveUnknownFields: &open}}}},
		},
	})
}

// createServed creates a custom resource once its kind is served.
func (a *apiClient) createServed(ctx context.Context, o *unstructured.Unstructured) error {
	return pollUntil(ctx, patience, o.GetKind()+" is served", func() (bool, error) { return a.client.Create(ctx, o) == nil, nil })
}

func newToy(namespace, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"wheels": int64(4)}}
	u.SetAPIVersion(kindGroup + "/v1")
	u.SetKind("Toy")
	u.SetNamespace(namespace)
	u.SetName(name)
	return u
}

// dropKind removes the definition, so that the restore has to bring it.
func dropKind(ctx context.Context, b *Bed, _ string) error {
	definition := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: kindName}}
	if err := b.apiClient.removeObject(ctx, definition); err != nil {
		return err
	}
	return pollUntil(ctx, patience, kindName+" is gone", func() (bool, error) {
		err := b.client.Get(ctx, client.ObjectKeyFromObject(definition), definition)
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
}

// plantOwned makes a Job whose CronJob is restored after it, so that its owner reference comes
// last.
func (a *apiClient) plantOwned(ctx context.Context) error {
	pod := corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "main", Image: "registry.k8s.io/pause:3.10"}},
	}}
	spec := batchv1.JobSpec{Suspend: new(true), Template: pod}
	owner := &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Namespace: small, Name: "nightly"}, Spec: batchv1.CronJobSpec{
		Schedule: "0 0 1 1 *", Suspend: new(true), JobTemplate: batchv1.JobTemplateSpec{Spec: spec},
	}}
	if err := a.createObject(ctx, owner); err != nil {
		return err
	}
	return a.createObject(ctx, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: small, Name: "nightly-1", OwnerReferences: []metav1.OwnerReference{
		*metav1.NewControllerRef(owner, batchv1.SchemeGroupVersion.WithKind("CronJob")),
	}}, Spec: spec})
}

// prepareUpdate puts a namespace and an object where the restore finds them different.
func prepareUpdate(ctx context.Context, b *Bed, name string) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"example.com/changed": "yes"}}}
	if err := b.apiClient.createObject(ctx, namespace); err != nil {
		return err
	}
	return b.apiClient.createObject(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "bulk-0"}, Data: map[string]string{"data": "changed"}})
}

// grantIn is a binding of an account of a namespace.
func grantIn(namespace string, subjects ...rbacv1.Subject) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "grant"}, Subjects: subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"}}
}

// plantGrant makes a binding whose account follows the namespace mapping.
func (a *apiClient) plantGrant(ctx context.Context) error {
	return a.createObject(ctx, grantIn(small, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: small, Name: "default"}))
}

// prepareGrant puts a binding to which the restore has to add an account.
func prepareGrant(ctx context.Context, b *Bed, name string) error {
	if err := makeNamespace(ctx, b, name); err != nil {
		return err
	}
	return b.apiClient.createObject(ctx, grantIn(name))
}

func newAccount(namespace, team string) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "robot", Labels: map[string]string{team: "yes"}}}
}

// plantAccount makes an account with a label.
func (a *apiClient) plantAccount(ctx context.Context) error {
	return a.createObject(ctx, newAccount(small, "stored"))
}

// prepareAccount puts an account to which the restore has to add a label.
func prepareAccount(ctx context.Context, b *Bed, name string) error {
	if err := makeNamespace(ctx, b, name); err != nil {
		return err
	}
	return b.apiClient.createObject(ctx, newAccount(name, "live"))
}

// prepareRefusedUpdate puts an object where the restore finds it different, in its data, which cannot be changed, and its labels.
func prepareRefusedUpdate(ctx context.Context, b *Bed, name string) error {
	if err := makeNamespace(ctx, b, name); err != nil {
		return err
	}
	meta := metav1.ObjectMeta{Namespace: name, Name: "bulk-0", Labels: map[string]string{"only": "live"}}
	return b.apiClient.createObject(ctx, &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"data": "changed"}, Immutable: new(true)})
}

func observeRestore(ctx context.Context, b *Bed, name string) (Facts, error) {
	restore, err := b.apiClient.awaitRestored(ctx, name)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join("restores", name)
	f := Facts{
		"phase": string(restore.Status.Phase), "reason": restore.Status.FailureReason, "validation": fmt.Sprint(restore.Status.ValidationErrors),
		"warnings": strconv.Itoa(restore.Status.Warnings), "errors": strconv.Itoa(restore.Status.Errors),
	}
	if p := restore.Status.Progress; p != nil {
		f["progress"] = fmt.Sprintf("%d of %d", p.ItemsRestored, p.TotalItems)
	}
	scrub := strings.NewReplacer(name, "NAME", string(restore.UID), "UID")
	if err := b.bucket.awaitSwept(ctx, f, dir, scrub); err != nil {
		return nil, err
	}
	texts, err := b.bucket.readTexts(dir, []string{
		"restore-" + name + "-results.gz", "restore-" + name + "-resource-list.json.gz", "restore-" + name + "-itemoperations.json.gz",
		name + "-volumeinfo.json.gz",
	}, scrub)
	if err != nil {
		return nil, fmt.Errorf("%w: %s, %s: %w", ErrDiffers, f["phase"], f["reason"], err)
	}
	f.addPrefixed("document ", texts)
	if err := b.addObjects(ctx, f, name, scrub); err != nil {
		return nil, err
	}
	return f, b.apiClient.awaitReleased(ctx, restore)
}

func (a *apiClient) awaitRestored(ctx context.Context, name string) (*velerov1.Restore, error) {
	restore := &velerov1.Restore{}
	err := pollUntil(ctx, patience, "restore "+name+" ends", func() (bool, error) {
		found, err := a.getObject(ctx, name, restore)
		return found && restore.Status.Phase.Terminal(), err
	})
	if err != nil {
		err = fmt.Errorf("%w (phase %q)", err, restore.Status.Phase)
	}
	return restore, err
}

// settling is how long controllers have to adopt and complete what was restored.
const settling = 60 * time.Second

// addObjects adds what is in the namespace restored to, once it has stopped changing.
func (b *Bed) addObjects(ctx context.Context, f Facts, namespace string, scrub *strings.Replacer) error {
	var last map[string]string
	equal := 0
	return pollUntil(ctx, settling, "the objects in "+namespace+" rest", func() (bool, error) {
		snapshot, err := compare.Take(ctx, b.cluster.RestConfig(), compare.Scope{Namespaces: []string{namespace}})
		if err != nil {
			return false, err
		}
		found := map[string]string{}
		for key, object := range snapshot.Objects {
			text, err := json.Marshal(object)
			if err != nil {
				return false, err
			}
			found[scrub.Replace(key.String())] = scrub.Replace(string(text))
		}
		if Facts(last).Compare(found) != nil {
			last, equal = found, 0
			return false, nil
		}
		if equal++; equal < 2 {
			return false, nil
		}
		f.addPrefixed("object ", found)
		return true, nil
	})
}

func removeNamespace(ctx context.Context, b *Bed, name string) error {
	return b.apiClient.removeObject(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
}
