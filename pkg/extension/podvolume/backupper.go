package podvolume

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/joblog"
)

// Backupper begins the file-system backups of one backup. Safe for concurrent use.
type Backupper struct {
	API
	// Backup is what the data is for. It must not change.
	Backup *velerov1.Backup
	// Selects reports whether the backup takes a Pod; nil takes all.
	Selects func(pod *corev1.Pod) bool
	// Claims reports whether the backup takes claims.
	Claims bool
	Mover  Mover
	// Timeout is how long post hooks wait for the data of their Pods.
	Timeout time.Duration

	mu      sync.Mutex
	surveys map[string]*survey // by namespace
	claims  map[client.ObjectKey]*claimFacts
	// taken are the Pods of requests, by claim; past are the volumes that earlier holders requested,
	// by the hash of the operation. Nil before findEarlierRequests.
	taken  map[client.ObjectKey]string
	past   map[string]map[string]struct{}
	agents *agents

	recent recentList // of blocks that wait
}

func (b *Backupper) byDefault() bool { return ptr.Deref(b.Backup.Spec.DefaultVolumesToFsBackup, false) }

// Action returns the action of the backup.
func (b *Backupper) Action() action.BackupItem { return podAction{b} }

// podAction requests the file-system backup of the volumes of a Pod. The object is stored as it is.
type podAction struct{ *Backupper }

var (
	_ action.BackupStarter    = podAction{}
	_ action.BackupOperations = podAction{}
	_ action.DryRunSafe       = podAction{}
)

// Name implements action.Action.
func (podAction) Name() string { return NameBackup }

// AppliesTo implements action.Action.
func (podAction) AppliesTo(context.Context) (action.Selector, error) {
	return action.Selector{IncludedResources: []string{"pods"}}, nil
}

// Concerns reports whether a Pod, as JSON, may have volumes that are taken.
func (a podAction) Concerns(raw []byte) bool {
	return a.byDefault() || bytes.Contains(raw, []byte(velerov1.AnnotationBackupVolumes)) || bytes.IndexByte(raw, '\\') >= 0
}

// OperationKind implements action.BackupOperations.
func (podAction) OperationKind() string { return "BackupItemActionV2" }

// DryRunSafe implements action.DryRunSafe.
func (podAction) DryRunSafe() {}

// Execute implements action.BackupItem. Dry runs call it: it requests nothing, and says in notes
// what would become of each chosen volume.
func (a podAction) Execute(ctx context.Context, o *action.Object, _ *action.Backup) (r action.BackupResult, err error) {
	r.Object = o
	pod, err := decodePod(o)
	if err != nil {
		return r, fmt.Errorf("action %s: Execute: %w", NameBackup, err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	verdicts, _, err := a.judgePod(ctx, pod, "")
	for i := range verdicts {
		v := &verdicts[i]
		note := v.buildNote()
		if v.reason == "" {
			note = action.Note{Level: joblog.Info, Message: fmt.Sprintf("volume %s would be taken by file-system backup", v.name)}
		}
		r.Notes = append(r.Notes, note)
	}
	return r, err
}

// Start implements action.BackupStarter. Each chosen volume that is not requested is in the notes
// of the result.
func (a podAction) Start(ctx context.Context, o *action.Object, _ *action.Backup, key string) (r action.BackupResult, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
		if err != nil {
			err = fmt.Errorf("action %s: Execute: %w", NameBackup, err)
		}
	}()
	r.Object = o
	pod, err := decodePod(o)
	if err != nil {
		return r, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	hash, requests := Hash(key), 0
	verdicts, live, err := a.judgePod(ctx, pod, hash)
	if err != nil {
		return r, err
	}
	for i := range verdicts {
		v := &verdicts[i]
		if v.reason == "" {
			err := a.createRequest(ctx, pod, live.node, key, v)
			switch {
			case err != nil && ctx.Err() != nil:
				return r, context.Cause(ctx)
			case err == nil:
				requests++
				continue
			}
			v.refuseVolume(joblog.Error, "%s", err)
		}
		r.Notes = append(r.Notes, v.buildNote())
	}
	if requests > 0 {
		r.OperationID = BackupOperationID(hash, requests)
	}
	return r, nil
}

func decodePod(o *action.Object) (*corev1.Pod, error) {
	raw, err := o.JSON()
	if err != nil {
		return nil, err
	}
	pod := &corev1.Pod{}
	if err := json.Unmarshal(raw, pod); err != nil {
		return nil, fmt.Errorf("read the Pod: %w", err)
	}
	return pod, nil
}

// buildNote returns the message about a volume that is not taken.
func (v *verdict) buildNote() action.Note {
	return action.Note{Level: v.level, Message: fmt.Sprintf("volume %s: no file-system backup: %s", v.name, v.reason)}
}

// createRequest makes the PodVolumeBackup of a volume, or finds the one that a call with the same
// key made.
func (b *Backupper) createRequest(ctx context.Context, pod *corev1.Pod, node, key string, v *verdict) error {
	if _, requested := b.past[Hash(key)][v.name]; requested {
		return nil
	}
	pvb := b.newRequest(pod, node, key, v)
	err := b.retryCall(ctx, "create PodVolumeBackup "+pvb.Name, func() error { return b.Client.Create(ctx, pvb) })
	if err != nil && !apierrors.IsAlreadyExists(err) { // the call before got no answer
		return err
	}
	if v.claim != "" {
		b.taken[client.ObjectKey{Namespace: pod.Namespace, Name: v.claim}] = pod.Name
	}
	return nil
}

// newRequest is the PodVolumeBackup to make (Velero 1.18).
func (b *Backupper) newRequest(pod *corev1.Pod, node, key string, v *verdict) *velerov1.PodVolumeBackup {
	backup := b.Backup
	pvb := &velerov1.PodVolumeBackup{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: b.Namespace, Name: RequestName(backup.Name, key+"/"+v.name),
			Labels: map[string]string{velerov1.LabelBackupName: velerov1.LabelValue(backup.Name), velerov1.LabelBackupUID: string(backup.UID), LabelOperation: Hash(key)},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: velerov1.GroupVersion.String(), Kind: "Backup", Name: backup.Name, UID: backup.UID, Controller: ptr.To(true)}},
		},
		Spec: velerov1.PodVolumeBackupSpec{
			Node: node, Pod: corev1.ObjectReference{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}, Volume: v.name,
			BackupStorageLocation: backup.Spec.StorageLocation, UploaderType: "kopia",
			Tags: map[string]string{"backup": backup.Name, "backup-uid": string(backup.UID), "pod": pod.Name, "pod-uid": string(pod.UID), "ns": pod.Namespace, "volume": v.name},
		},
	}
	if c := backup.Spec.UploaderConfig; c != nil && c.ParallelFilesUpload > 0 {
		pvb.Spec.UploaderSettings = map[string]string{"ParallelFilesUpload": strconv.Itoa(c.ParallelFilesUpload)}
	}
	if v.facts != nil {
		pvb.Annotations = map[string]string{velerov1.AnnotationPVCName: v.claim, AnnotationVolume: v.facts.info}
		pvb.Labels[velerov1.LabelPVCUID], pvb.Spec.Tags["pvc-uid"] = v.facts.uid, v.facts.uid
	}
	return pvb
}
