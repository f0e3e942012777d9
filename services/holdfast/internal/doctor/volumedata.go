package doctor

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// enforcedLevel is the label of a namespace with the level of Pod security that is enforced in it.
const enforcedLevel = "pod-security.kubernetes.io/enforce"

// maintenanceFailed is the result of a run of maintenance (Velero 1.18).
const maintenanceFailed velerov1.BackupRepositoryMaintenanceResult = "Failed"

// checkVolumeData checks what file-system backups need.
func (e *examination) checkVolumeData(ctx context.Context, n *checkNotes) {
	e.checkPassword(ctx, n)
	e.checkPodSecurity(ctx, n)
	e.checkMaintenance(ctx, n)
}

// checkMaintenance looks for repositories that are not maintained.
func (e *examination) checkMaintenance(ctx context.Context, n *checkNotes) {
	list := &velerov1.BackupRepositoryList{}
	err := e.Client.List(ctx, list, client.InNamespace(e.Namespace))
	switch {
	case apierrors.IsForbidden(err):
		n.addSkipped("maintenance", "BackupRepositories cannot be listed by you", "run this as someone who may `list` backuprepositories")
		return
	case err != nil:
		n.addFailure("maintenance", err.Error(), "install the definitions, and make the API server answer")
		return
	}
	bad := 0
	for i := range list.Items {
		r := &list.Items[i]
		at, stopped := r.Annotations[holdfast.AnnotationMaintenanceStopped]
		runs, subject := r.Status.RecentMaintenance, "BackupRepository "+r.Name
		switch {
		case stopped:
			n.addFailure(subject, "another program maintained it at "+at+", so that its maintenance has stopped: two at once can lose data",
				fmt.Sprintf("stop the maintenance of the Velero server, or of kopia, that uses the bucket, then kubectl -n %s annotate backuprepository %s %s-", r.Namespace, r.Name, holdfast.AnnotationMaintenanceStopped))
		case len(runs) > 0 && runs[len(runs)-1].Result == maintenanceFailed:
			n.addWarning(subject, "its last maintenance failed: "+runs[len(runs)-1].Message, "it is tried again within an hour; see Maintenance in docs/volume-data.md")
		default:
			continue
		}
		bad++
	}
	if bad == 0 {
		n.addOK("maintenance", "no repository is stopped, and no last run has failed")
	}
}

// checkPassword warns of the password that everybody knows.
func (e *examination) checkPassword(ctx context.Context, n *checkNotes) {
	const subject = "Secret " + velerov1.RepositorySecret
	secret := &corev1.Secret{}
	err := e.Client.Get(ctx, client.ObjectKey{Namespace: e.Namespace, Name: velerov1.RepositorySecret}, secret)
	switch password := strings.TrimSpace(string(secret.Data[velerov1.RepositoryPasswordKey])); {
	case apierrors.IsForbidden(err):
		n.addSkipped(subject, "it cannot be read by you", "run this as someone who may `get` the Secret")
	case apierrors.IsNotFound(err):
		n.addOK(subject, "volume-mover makes it, with a random password")
	case err != nil:
		n.addFailure(subject, err.Error(), "make the API server answer")
	case password == "":
		n.addFailure(subject, "it has no key "+velerov1.RepositoryPasswordKey, "put the password of the repositories there, or delete the Secret where there are none yet: volume-mover makes it anew")
	case password == velerov1.DefaultRepositoryPassword:
		n.addWarning(subject, "it has Velero's default password, which everybody knows: who can read a bucket can read the data of its volumes",
			"where no repository exists yet, delete the Secret and restart volume-mover, which makes a random password; a repository keeps the password that it was made with")
	default:
		n.addOK(subject, "it has a password of its own")
	}
}

// checkPodSecurity warns of a level of Pod security that refuses mover Pods.
func (e *examination) checkPodSecurity(ctx context.Context, n *checkNotes) {
	subject := "namespace " + e.Namespace
	namespace := &corev1.Namespace{}
	err := e.Client.Get(ctx, client.ObjectKey{Name: e.Namespace}, namespace)
	switch level := namespace.Labels[enforcedLevel]; {
	case apierrors.IsForbidden(err):
		n.addSkipped(subject, "its labels cannot be read by you", "run this as someone who may `get` the namespace")
	case err != nil:
		n.addFailure(subject, err.Error(), "create the namespace, and make the API server answer")
	case level != "" && level != "privileged":
		n.addWarning(subject, fmt.Sprintf("it enforces Pod security of level %s, which refuses mover Pods: file-system backups have an error for each volume", level),
			fmt.Sprintf("kubectl label namespace %s --overwrite %s=privileged, if volumes are to be backed up by their files", e.Namespace, enforcedLevel))
	default:
		n.addOK(subject, "its labels let mover Pods run")
	}
}
