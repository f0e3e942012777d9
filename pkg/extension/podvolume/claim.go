package podvolume

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// VolumeInfo describes the PersistentVolume of a request, as backups record it: what restores need
// of the volume.
type VolumeInfo struct {
	Name          string            `json:"name"`
	ReclaimPolicy string            `json:"reclaimPolicy,omitempty"`
	Labels        map[string]string `json:"labels,omitempty"`
}

// AnnotationVolume on a request describes the volume of its claim, see VolumeInfo.
const AnnotationVolume = "holdfast.io/pod-volume-info"

// claimFacts are what of a claim and its volume decides on file-system backup.
type claimFacts struct {
	uid  string
	info string // a VolumeInfo as JSON
	// unfit is why the kind of the volume rules file-system backup out; empty for others.
	unfit string
	// onNode volumes are directories of the node, which nothing else backs up either.
	onNode bool
	// failure is why the claim cannot be taken, though its kind could.
	failure string
}

// readClaim returns the facts of a claim. They are read once.
func (b *Backupper) readClaim(ctx context.Context, key client.ObjectKey) (*claimFacts, error) {
	if known := b.claims[key]; known != nil {
		return known, nil
	}
	facts, err := b.lookAtClaim(ctx, key)
	if err != nil {
		return nil, err
	}
	if b.claims == nil {
		b.claims = map[client.ObjectKey]*claimFacts{}
	}
	b.claims[key] = facts
	return facts, nil
}

func (b *Backupper) lookAtClaim(ctx context.Context, key client.ObjectKey) (*claimFacts, error) {
	var claims corev1.PersistentVolumeClaimList
	if err := b.listNamed(ctx, key, &claims); err != nil {
		return nil, err
	}
	if len(claims.Items) == 0 {
		return &claimFacts{failure: fmt.Sprintf("claim %s does not exist", key.Name)}, nil
	}
	claim := &claims.Items[0]
	facts := &claimFacts{uid: string(claim.UID)}
	if ptr.Deref(claim.Spec.VolumeMode, corev1.PersistentVolumeFilesystem) == corev1.PersistentVolumeBlock {
		facts.unfit = "claim " + key.Name + " is a block device, which has no file system to read"
	}
	if claim.Status.Phase != corev1.ClaimBound || claim.Spec.VolumeName == "" {
		facts.failure = fmt.Sprintf("claim %s is not bound to a volume", key.Name)
		return facts, nil
	}
	var volumes corev1.PersistentVolumeList
	if err := b.listNamed(ctx, client.ObjectKey{Name: claim.Spec.VolumeName}, &volumes); err != nil {
		return nil, err
	}
	if len(volumes.Items) == 0 {
		facts.failure = fmt.Sprintf("PersistentVolume %s of claim %s does not exist", claim.Spec.VolumeName, key.Name)
		return facts, nil
	}
	pv := &volumes.Items[0]
	if pv.Spec.HostPath != nil {
		facts.unfit, facts.onNode = "the volume of claim "+key.Name+" is a hostPath, which belongs to the node", true
	}
	info, err := json.Marshal(VolumeInfo{Name: pv.Name, ReclaimPolicy: string(pv.Spec.PersistentVolumeReclaimPolicy), Labels: pv.Labels})
	if err != nil {
		return nil, fmt.Errorf("describe the volume: %w", err)
	}
	facts.info = string(info)
	return facts, nil
}

// listNamed reads one object as a list, which is a right that a backup has for every kind.
func (a API) listNamed(ctx context.Context, key client.ObjectKey, list client.ObjectList) error {
	return a.retryCall(ctx, fmt.Sprintf("read %T %s", list, key), func() error {
		return a.Reader.List(ctx, list, client.InNamespace(key.Namespace), client.MatchingFields{"metadata.name": key.Name})
	})
}
