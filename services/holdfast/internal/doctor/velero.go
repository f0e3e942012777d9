package doctor

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// checkVelero looks for Velero servers that would work on the same objects or the same buckets.
func (e *examination) checkVelero(ctx context.Context, n *checkNotes) {
	found, err := e.veleroDeployments(ctx)
	if apierrors.IsForbidden(err) {
		n.addSkipped("", "you may not list Deployments in all namespaces: only "+e.Namespace+" was looked at", "run this as someone who may")
		found, err = e.veleroDeployments(ctx, client.InNamespace(e.Namespace))
	}
	if err != nil {
		n.addFailure("", fmt.Sprintf("Deployments cannot be listed: %v", err), "get the right to `list` deployments, and make the API server answer")
		return
	}
	for i := range found {
		e.oneVelero(ctx, n, &found[i])
	}
	if len(found) == 0 {
		n.addOK("", "no Velero server was found")
	}
}

// deploymentsAtOnce is the size of a page of Deployments: a cluster may have thousands.
const deploymentsAtOnce = 500

// veleroDeployments returns the Deployments that run Velero's server.
func (e *examination) veleroDeployments(ctx context.Context, opts ...client.ListOption) ([]appsv1.Deployment, error) {
	var found []appsv1.Deployment
	for next := ""; ; {
		page := &appsv1.DeploymentList{}
		if err := e.Client.List(ctx, page, append(slices.Clone(opts), client.Limit(deploymentsAtOnce), client.Continue(next))...); err != nil {
			return nil, err
		}
		for i := range page.Items {
			if isVelero(&page.Items[i]) {
				found = append(found, page.Items[i])
			}
		}
		if next = page.Continue; next == "" {
			return found, nil
		}
	}
}

// oneVelero notes what a Velero server means for this installation.
func (e *examination) oneVelero(ctx context.Context, n *checkNotes, d *appsv1.Deployment) {
	subject, serves := "Deployment "+d.Namespace+"/"+d.Name, servedNamespace(d)
	stopIt := fmt.Sprintf("scale it down (kubectl -n %s scale deployment %s --replicas=0), or use Holdfast in another namespace", d.Namespace, d.Name)
	switch {
	case d.Status.ReadyReplicas == 0 && (d.Spec.Replicas == nil || *d.Spec.Replicas > 0) && serves == e.Namespace:
		n.addWarning(subject, "a Velero server for namespace "+serves+" is not ready, and would work on the same objects once it is", stopIt)
	case d.Status.ReadyReplicas == 0:
		n.addOK(subject, "a Velero server that does not run")
	case serves == e.Namespace:
		n.addFailure(subject, "a Velero server works on the same objects of namespace "+serves, stopIt)
	default:
		e.sharedBuckets(ctx, n, subject, serves)
	}
}

// sharedBuckets compares the locations of another namespace's server with those here.
func (e *examination) sharedBuckets(ctx context.Context, n *checkNotes, subject, namespace string) {
	theirs, ours := &velerov1.BackupStorageLocationList{}, &velerov1.BackupStorageLocationList{}
	for _, list := range []struct {
		into      *velerov1.BackupStorageLocationList
		namespace string
	}{{theirs, namespace}, {ours, e.Namespace}} {
		if err := e.Client.List(ctx, list.into, client.InNamespace(list.namespace)); err != nil {
			n.addSkipped(subject, fmt.Sprintf("a Velero server for namespace %s; whether it has the same buckets is not known: %v", namespace, err), "run this as someone who may list backupstoragelocations there")
			return
		}
	}
	var shared []string
	for i := range ours.Items {
		o := &ours.Items[i]
		if slices.ContainsFunc(theirs.Items, func(t velerov1.BackupStorageLocation) bool { return bucketOf(&t) == bucketOf(o) }) {
			shared = append(shared, o.Name)
		}
	}
	if len(shared) > 0 {
		n.addWarning(subject, fmt.Sprintf("a Velero server for namespace %s has the buckets of locations %s too: each lists, and expires, the backups of the other", namespace, strings.Join(shared, ", ")),
			"give one of them another bucket or prefix, or make its location ReadOnly")
		return
	}
	n.addOK(subject, "a Velero server for namespace "+namespace+", with other buckets")
}

// bucketOf is where a location's objects are, as text that is equal for equal places.
func bucketOf(l *velerov1.BackupStorageLocation) string {
	if l.Spec.ObjectStorage == nil {
		return "none " + l.Namespace + "/" + l.Name
	}
	return strings.Join([]string{
		l.Spec.Provider, strings.Trim(l.Spec.ObjectStorage.Bucket, "/"), strings.Trim(l.Spec.ObjectStorage.Prefix, "/"), l.Spec.Config["s3Url"], l.Spec.Config["path"],
	}, "\x00")
}

// isVelero reports whether a Deployment runs Velero's server: by the label of Velero's installer
// and chart, or by its image.
func isVelero(d *appsv1.Deployment) bool {
	labels := d.Labels
	if labels[velerov1.LabelComponent] == "velero" || labels["app.kubernetes.io/name"] == "velero" {
		return true
	}
	return slices.ContainsFunc(d.Spec.Template.Spec.Containers, func(c corev1.Container) bool {
		image, _, _ := strings.Cut(path.Base(c.Image), ":")
		image, _, _ = strings.Cut(image, "@")
		return image == "velero" && (slices.Contains(c.Args, "server") || slices.Contains(c.Command, "server"))
	})
}

// servedNamespace is the namespace that a Velero server works on: --namespace, else $VELERO_NAMESPACE, else
// velero (Velero 1.18).
func servedNamespace(d *appsv1.Deployment) string {
	for i := range d.Spec.Template.Spec.Containers {
		c := &d.Spec.Template.Spec.Containers[i]
		if namespace, ok := findFlagValue(c, "namespace"); ok {
			return namespace
		}
		for _, variable := range c.Env {
			switch {
			case variable.Name != "VELERO_NAMESPACE":
			case variable.Value != "":
				return variable.Value
			case variable.ValueFrom != nil && variable.ValueFrom.FieldRef != nil:
				return d.Namespace
			}
		}
	}
	return velerov1.DefaultNamespace
}
