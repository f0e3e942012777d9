package csisnapshot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
)

// DefaultTimeout is how long the driver has to cut a snapshot unless the backup sets it.
const DefaultTimeout = 10 * time.Minute

// Snapshotter takes the snapshots of one backup. Safe for concurrent use.
type Snapshotter struct {
	API
	// Backup is what the snapshots are for. It must not change.
	Backup *velerov1.Backup
	// Lock waits until no other backup takes a snapshot of a volume, and keeps others from it until
	// unlock is called. Waiting ends with ctx, which csiSnapshotTimeout bounds. Nil waits for nothing.
	Lock func(ctx context.Context, volume string) (unlock func(), err error)
	// Skips reports whether the data of a claim is taken otherwise, and needs no snapshot; nil skips
	// none.
	Skips func(ctx context.Context, namespace, claim string) (bool, error)
	// Movement has the data of the snapshots be moved, and the snapshots go then; nil leaves both where they are.
	Movement *Movement
	// Warn reports what a user should know about the backup; nil reports nothing.
	Warn func(message string)

	mu       sync.Mutex
	several  map[string]bool           // drivers of which several classes are labelled, and that were reported
	ahead    map[string]*begunSnapshot // by the names of volumes in the ledger
	watching sync.WaitGroup
}

// Volume describes the volume that a snapshot is of, as backups record it: what restores need of
// its PersistentVolume.
type Volume struct {
	Name          string            `json:"name"`
	ReclaimPolicy string            `json:"reclaimPolicy,omitempty"`
	Labels        map[string]string `json:"labels,omitempty"`
}

// claim is the part of a PersistentVolumeClaim that matters here.
type claim struct {
	Metadata struct {
		Name        string            `json:"name"`
		Namespace   string            `json:"namespace"`
		UID         types.UID         `json:"uid"`
		Labels      map[string]string `json:"labels"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		VolumeName string `json:"volumeName"`
	} `json:"spec"`
	Status struct {
		Phase corev1.PersistentVolumeClaimPhase `json:"phase"`
	} `json:"status"`
}

// snapshotSubject is a claim of which a snapshot is taken.
type snapshotSubject struct {
	claim  *claim
	volume *corev1.PersistentVolume
	class  string
	key    string
}

// lockName names the volume in the ledger.
func (s *snapshotSubject) lockName() string {
	return "csi/" + s.volume.Spec.CSI.Driver + "/" + s.volume.Spec.CSI.VolumeHandle
}

// wantsVolumeData reports whether the backup is to take data of volumes.
func (s *Snapshotter) wantsVolumeData() bool {
	return s.Backup.Spec.SnapshotVolumes == nil || *s.Backup.Spec.SnapshotVolumes
}

// findSubject returns what a snapshot is to be taken of; nil where none is: the claim is not bound, its
// volume is of no CSI driver, or no class can be chosen, with the reason in Why.
func (s *Snapshotter) findSubject(ctx context.Context, c *claim, key string) (*snapshotSubject, error) {
	if !s.wantsVolumeData() || c.Status.Phase != corev1.ClaimBound || c.Spec.VolumeName == "" {
		return nil, nil
	}
	if s.Skips != nil {
		if skipped, err := s.Skips(ctx, c.Metadata.Namespace, c.Metadata.Name); err != nil || skipped {
			return nil, err
		}
	}
	pv := &corev1.PersistentVolume{}
	found, err := s.getObject(ctx, "", c.Spec.VolumeName, pv)
	if err != nil || !found || pv.Spec.CSI == nil {
		return nil, err
	}
	class, err := s.classForClaim(ctx, c, pv.Spec.CSI.Driver)
	var no *ClassError
	if errors.As(err, &no) || errors.Is(err, ErrNotServed) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &snapshotSubject{claim: c, volume: pv, class: class, key: key}, nil
}

// ErrMissed means that the claim of a volume could have had a snapshot and has none.
var ErrMissed = errors.New("the claim was not bound to it when a snapshot could be taken")

// WhyNotTaken returns why no snapshot was taken of the volume of a CSI driver: an error that wraps
// ErrNotServed, a *ClassError or ErrMissed, or one of the API server.
func (s *Snapshotter) WhyNotTaken(ctx context.Context, pv *corev1.PersistentVolume) error {
	c := &claim{}
	if ref := pv.Spec.ClaimRef; ref != nil {
		live := &corev1.PersistentVolumeClaim{}
		found, err := s.getObject(ctx, ref.Namespace, ref.Name, live)
		if err != nil {
			return err
		}
		if found {
			c = claimOf(live)
		}
		c.Metadata.Namespace, c.Metadata.Name = ref.Namespace, ref.Name
	}
	if _, err := s.classForClaim(ctx, c, pv.Spec.CSI.Driver); err != nil {
		return err
	}
	return ErrMissed
}

func claimOf(o *corev1.PersistentVolumeClaim) *claim {
	c := &claim{}
	c.Metadata.Name, c.Metadata.Namespace, c.Metadata.UID, c.Metadata.Labels, c.Metadata.Annotations = o.Name, o.Namespace, o.UID, o.Labels, o.Annotations
	c.Spec.VolumeName, c.Status.Phase = o.Spec.VolumeName, o.Status.Phase
	return c
}

// decodeClaim reads a claim.
func decodeClaim(o *action.Object) (*claim, error) {
	raw, err := o.JSON()
	if err != nil {
		return nil, err
	}
	c := &claim{}
	if err := json.Unmarshal(raw, c); err != nil {
		return nil, fmt.Errorf("read the claim: %w", err)
	}
	return c, nil
}

// snapshotTimeout is how long the driver has to cut a snapshot.
func snapshotTimeout(b *velerov1.Backup) time.Duration {
	if d := b.Spec.CSISnapshotTimeout.Duration; d > 0 {
		return d
	}
	return DefaultTimeout
}

// newVolumeSnapshot is the VolumeSnapshot to make.
func (s *Snapshotter) newVolumeSnapshot(of *snapshotSubject, name string) (*snapshotv1.VolumeSnapshot, error) {
	volume, err := json.Marshal(Volume{Name: of.volume.Name, ReclaimPolicy: string(of.volume.Spec.PersistentVolumeReclaimPolicy), Labels: of.volume.Labels})
	if err != nil {
		return nil, fmt.Errorf("describe the volume: %w", err)
	}
	labels := maps.Clone(of.claim.Metadata.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	for _, key := range foreignLabels {
		delete(labels, key)
	}
	maps.Copy(labels, s.backupLabels())
	return &snapshotv1.VolumeSnapshot{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: of.claim.Metadata.Namespace, Name: name, Labels: labels,
			Annotations: map[string]string{AnnotationKey: of.key, AnnotationVolume: string(volume)},
		},
		Spec: snapshotv1.VolumeSnapshotSpec{
			Source: snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: &of.claim.Metadata.Name}, VolumeSnapshotClassName: &of.class,
		},
	}, nil
}

// foreignLabels are on claims that a restore made: with them a snapshot would pass for the restore's,
// and would not be removed with the backup.
var foreignLabels = []string{velerov1.LabelRestoreName, velerov1.LabelVolumeSnapshotName}

// backupLabels are on everything that the backup makes.
func (s *Snapshotter) backupLabels() map[string]string {
	return map[string]string{velerov1.LabelBackupName: velerov1.LabelValue(s.Backup.Name), velerov1.LabelBackupUID: string(s.Backup.UID)}
}

// suffixes are the characters that Kubernetes makes names of.
const suffixes = "bcdfghjklmnpqrstvwxz2456789"

// maxStem is how much of "velero-<claim>-" a name keeps (Velero 1.18, by generateName).
const maxStem = 58

// nameSnapshot returns the name of the snapshot with this key; of several, where another's object has a name
// already, they are tried in the order of turn.
func nameSnapshot(claim, key string, turn int) string {
	const digits = 5
	sum := hashText(fmt.Sprintf("%s/%d", key, turn))
	var name strings.Builder
	stem := "velero-" + claim + "-"
	name.WriteString(stem[:min(len(stem), maxStem)])
	for i := range digits {
		name.WriteByte(suffixes[int(sum[i])%len(suffixes)])
	}
	return name.String()
}
