package mark

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// ForeignReason is the failureReason of a job of another server, such as Velero. It ends once no live
// server of Velero is in the namespace; nothing of it is continued.
const ForeignReason = "left unfinished by another server"

// IsForeign reports whether another server brought a job into its phase, which is ReadyToStart or a
// later one: queue-scheduler numbers the backups that it admits, and runners claim what they begin.
func IsForeign(job metav1.Object) bool {
	annotations := job.GetAnnotations()
	_, claimed := annotations[holdfast.AnnotationClaim]
	_, numbered := annotations[holdfast.AnnotationQueueSequence]
	return !claimed && !numbered
}

// FindForeignServer returns the name of a Deployment of Velero's server in a namespace that has Pods or wants some; empty where there is
// none. Its Pods need not exist: a server that restarts, with strategy Recreate too, continues its jobs.
func FindForeignServer(ctx context.Context, reader client.Reader, namespace string) (string, error) {
	list := &appsv1.DeploymentList{}
	labels := client.MatchingLabels{velerov1.LabelComponent: "velero"}
	if err := reader.List(ctx, list, client.InNamespace(namespace), labels); err != nil {
		return "", fmt.Errorf("look for a Velero server: %w", err)
	}
	for i := range list.Items {
		if d := &list.Items[i]; ptr.Deref(d.Spec.Replicas, 1) > 0 || d.Status.Replicas > 0 || d.Status.ReadyReplicas > 0 {
			return d.Name, nil
		}
	}
	return "", nil
}
