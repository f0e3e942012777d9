package volumes

import (
	"context"
	"sync"

	"k8s.io/utils/clock"

	"github.com/holdfast-io/holdfast/pkg/archive/volumedata"
	"github.com/holdfast-io/holdfast/pkg/extension/podvolume"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/plan"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/object"
)

const podsResource = "pods"

// PodFillerConfig is what volumes of Pods are filled with.
type PodFillerConfig struct {
	Plan     *plan.Plan
	Recorder *outcome.Recorder
	Existing *object.LiveReader
	Volumes  *Decisions
	Restore  podvolume.RestoreJob
	// Image is that of the init container. Empty fills no volume.
	Image string
	// Config reads what is said about the init container. Nil says nothing.
	Config func(ctx context.Context) (*podvolume.WaitConfig, error)
	// Unrecorded is set if outcomes are not durable: nothing is waited for then.
	Unrecorded bool
	// DryRun has no request be made.
	DryRun   bool
	Timeouts object.DelayTimeouts
	Clock    clock.PassiveClock
}

// PodFiller has the volumes of restored Pods be filled from file-system backups: a Pod waits in an init
// container, and a PodVolumeRestore for each volume is made once the Pod is there. It makes the
// DataDownloads of restored claims, too. Safe for concurrent use.
type PodFiller struct {
	PodFillerConfig
	operations operation.Counter // of this action, beside that of all others

	mu     sync.Mutex
	config *podvolume.WaitConfig // once it was read
}

// NewPodFiller returns a filler. What earlier holders began is in the recorder before.
func NewPodFiller(cfg PodFillerConfig) *PodFiller {
	f := &PodFiller{PodFillerConfig: cfg}
	for _, o := range cfg.Recorder.Operations() {
		if o.Action == podvolume.NameRestore || o.Action == podvolume.NameDownload {
			f.operations.AddOperation(0)
		}
	}
	return f
}

// podVolume is a volume of a Pod, and the snapshot that it is filled from.
type podVolume struct {
	name, claim string
	pods        int // that wait for the claim
	snapshot    *volumedata.FileSnapshot
}

func (v *podVolume) String() string {
	if v.claim == "" {
		return "volume " + v.name
	}
	return "volume " + v.name + ", claim " + v.claim
}

// Prepare has a Pod that is about to be created wait for its data, and takes out what it waited for in
// an earlier restore. Other objects are left alone, and so is a Pod that the cluster has.
func (f *PodFiller) Prepare(ctx context.Context, o *object.Object) error {
	if !f.isPod(o) {
		return nil
	}
	spec, list := object.MapAt(o.Body, "spec"), f.volumesOf(o)
	if len(list) == 0 && !podvolume.HasWait(spec) {
		return nil
	}
	live, err := f.Existing.Get(ctx, o.Target)
	if err != nil {
		return err
	}
	meta := object.MapAt(live, "metadata")
	o.Exists = live != nil && !f.Existing.Manager.IsCreatedByRestore(meta)
	switch {
	case o.Exists && meta["deletionTimestamp"] != nil:
		return f.Timeouts.Deleted()
	case o.Exists:
		return nil
	}
	if f.Image == "" {
		list = nil
	}
	wait := &podvolume.Wait{Image: f.Image, Restore: f.Restore.UID, Pod: o.Target.Name, Shared: map[string]int{}}
	if len(list) > 0 {
		if wait.Config, err = f.readConfig(ctx); err != nil {
			return f.Timeouts.Of(err)
		}
	}
	for i := range list {
		wait.Volumes = append(wait.Volumes, list[i].name)
		if pods := list[i].pods; pods > 1 {
			wait.Shared[list[i].name] = pods
		}
	}
	o.Body["spec"] = podvolume.SetWait(spec, wait)
	return nil
}

// readConfig reads once what is said about the init container; after a failure the next Pod retries.
func (f *PodFiller) readConfig(ctx context.Context) (*podvolume.WaitConfig, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var err error
	switch {
	case f.config != nil:
	case f.Config == nil:
		f.config, err = podvolume.ParseWaitConfig(nil)
	default:
		f.config, err = f.Config(ctx)
	}
	return f.config, err
}

func (f *PodFiller) isPod(o *object.Object) bool {
	return o.Target.GVR.Group == "" && o.Target.GVR.Resource == podsResource && f.Plan.Kind(o.Node).String() == podsResource
}

// volumesOf returns the volumes of a Pod that have a snapshot.
func (f *PodFiller) volumesOf(o *object.Object) (list []podVolume) {
	source, pod := f.Plan.Source(o.Node), f.Plan.Name(o.Node)
	for _, entry := range object.ListAt(object.MapAt(o.Body, "spec"), "volumes") {
		volume, _ := entry.(map[string]any)
		if volume["projected"] != nil || volume["downwardAPI"] != nil || volume["configMap"] != nil || volume["secret"] != nil {
			continue
		}
		v := podVolume{name: object.TextAt(volume, "name"), claim: object.TextAt(object.MapAt(volume, "persistentVolumeClaim"), "claimName")}
		if volume["ephemeral"] != nil { // its controller makes the claim
			v.claim = pod + "-" + v.name
		}
		if v.snapshot = f.Volumes.PodBackup(source, pod, v.name, v.claim); v.snapshot == nil {
			continue
		}
		v.pods = len(f.plannedMounts(source, v.claim))
		list = append(list, v)
	}
	return list
}

// plannedMounts are the Pods of the restore that mount a claim.
func (f *PodFiller) plannedMounts(source, claim string) (planned []string) {
	pods, _ := f.Volumes.Mounts(source, claim)
	for _, pod := range pods {
		if node, ok := f.Plan.Find(podsResource, source, pod); ok && f.Recorder.Concerns(node) {
			planned = append(planned, pod)
		}
	}
	return planned
}
