package remove

import (
	"context"
	"fmt"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/failpoint"
)

// namespaceRequests are the deletion requests of a namespace.
type namespaceRequests struct {
	reader    client.Reader // uncached
	client    client.Client
	namespace string
}

func (r *Remover) deletionRequests() namespaceRequests {
	return namespaceRequests{reader: r.Reader, client: r.Client, namespace: r.Namespace}
}

// otherRequests returns the other requests for the same backup, labelled or not.
func (r namespaceRequests) otherRequests(ctx context.Context, req *velerov1.DeleteBackupRequest) ([]velerov1.DeleteBackupRequest, error) {
	var list velerov1.DeleteBackupRequestList
	if err := r.reader.List(ctx, &list, client.InNamespace(r.namespace)); err != nil {
		return nil, fmt.Errorf("list deletion requests: %w", err)
	}
	var same []velerov1.DeleteBackupRequest
	for _, o := range list.Items {
		if o.Spec.BackupName == req.Spec.BackupName && o.UID != req.UID {
			same = append(same, o)
		}
	}
	return same, nil
}

// hasOlderRequest reports whether an older unprocessed request for the same backup goes first; processed
// ones of failed attempts that are younger than a day are removed when a new attempt ends.
func (r namespaceRequests) hasOlderRequest(ctx context.Context, req *velerov1.DeleteBackupRequest) (bool, error) {
	others, err := r.otherRequests(ctx, req)
	if err != nil {
		return false, err
	}
	for i := range others {
		o := &others[i]
		if o.Status.Phase != velerov1.DeleteBackupRequestPhaseProcessed && o.DeletionTimestamp == nil && isOlder(o, req) {
			return true, nil
		}
	}
	return false, nil
}

func isOlder(a, b *velerov1.DeleteBackupRequest) bool {
	if a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return strings.Compare(a.Name, b.Name) < 0
	}
	return a.CreationTimestamp.Before(&b.CreationTimestamp)
}

// removeAll removes a request that is carried out, and all others for the backup that is gone
// (Velero 1.18).
func (r namespaceRequests) removeAll(ctx context.Context, req *velerov1.DeleteBackupRequest) error {
	others, err := r.otherRequests(ctx, req)
	if err != nil {
		return err
	}
	uid := req.Labels[velerov1.LabelBackupUID]
	for i := range others {
		if o := &others[i]; o.Labels[velerov1.LabelBackupUID] == uid {
			if err := r.removeRequest(ctx, o); err != nil {
				return err
			}
		}
	}
	err = r.removeRequest(ctx, req)
	failpoint.Hit("deletion/request-removed")
	return err
}

// removeProcessed removes what earlier attempts left: the outcome of this request replaces theirs.
func (r namespaceRequests) removeProcessed(ctx context.Context, req *velerov1.DeleteBackupRequest) error {
	others, err := r.otherRequests(ctx, req)
	if err != nil {
		return err
	}
	for i := range others {
		if o := &others[i]; o.Status.Phase == velerov1.DeleteBackupRequestPhaseProcessed {
			if err := r.removeRequest(ctx, o); err != nil {
				return err
			}
		}
	}
	return nil
}

// removeRequest removes this very request.
func (r namespaceRequests) removeRequest(ctx context.Context, req *velerov1.DeleteBackupRequest) error {
	err := r.client.Delete(ctx, req, client.Preconditions{UID: &req.UID})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete request %q: %w", req.Name, err)
	}
	return nil
}
