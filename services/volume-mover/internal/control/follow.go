package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/apis/velero/v2alpha1"
	"github.com/holdfast-io/holdfast/pkg/extension/podvolume"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/moverpod"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/outcome"
)

// logTimeout is how long the log of a mover may take to be read.
const logTimeout = 5 * time.Second

// listedEntries is how many of the incomplete entries a message names.
const listedEntries = 3

// notEmptyRemedy is what to do about a volume that held entries before its restore.
const notEmptyRemedy = "; delete the Pod to have its controller start one with the volume as it is, or restore again with the annotation " + holdfast.AnnotationOverwriteVolumes

// volumePath is where a mover has the volume.
const volumePath = "/volume"

// followMover notes that a mover runs, and how far it is.
func (c *Controller) followMover(ctx context.Context, v view, pod *corev1.Pod) (time.Duration, error) {
	var progress *outcome.Progress
	if *v.phase == velerov1.PodVolumePhaseInProgress { // a mover that has just begun has no report yet
		progress = c.readLog(ctx, pod).Progress
	}
	if err := c.confirmVolume(ctx, v); err != nil {
		return 0, c.settleError(ctx, v, err)
	}
	now := metav1.NewTime(c.Clock.Now())
	_, err := c.writeStatus(ctx, v, func(f view) {
		if f.isPreparing() {
			*f.phase, *f.started = velerov1.PodVolumePhaseInProgress, &now
		}
		f.setNode(pod.Spec.NodeName)
		if progress != nil {
			*f.progress = velerov1.DataMoveOperationProgress{BytesDone: progress.BytesDone, TotalBytes: progress.BytesTotal}
		}
	})
	return progressInterval, err
}

// confirmVolume has the volume that a mover has begun with be removed with its claim.
func (c *Controller) confirmVolume(ctx context.Context, v view) error {
	if !v.isOfClaim() || !v.isPreparing() {
		return nil
	}
	claim := &corev1.PersistentVolumeClaim{}
	if err := c.Reader.Get(ctx, client.ObjectKeyFromObject(v), claim); err != nil {
		return client.IgnoreNotFound(err)
	}
	return c.disposeVolume(ctx, claim)
}

// report is a line of a mover's output.
type report struct {
	Progress *outcome.Progress `json:"progress"`
	Result   *outcome.Result   `json:"result"`
}

// readLog returns the last report in the log of a mover; it is empty if the log cannot be read.
func (c *Controller) readLog(ctx context.Context, pod *corev1.Pod) (last report) {
	ctx, cancel := context.WithTimeout(ctx, logTimeout)
	defer cancel()
	text, err := c.Logs.TailLog(ctx, pod)
	if err != nil {
		c.Log.DebugContext(ctx, "Failed to read the log of a mover Pod", "pod", pod.Name, "error", err)
	}
	for line := range bytes.Lines(text) {
		var r report
		if json.Unmarshal(line, &r) == nil && (r.Progress != nil || r.Result != nil) {
			last = r
		}
	}
	return last
}

// finishTransfer ends a request whose mover has ended, with its result.
func (c *Controller) finishTransfer(ctx context.Context, v view, pod *corev1.Pod) error {
	if err := c.confirmVolume(ctx, v); err != nil {
		return c.settleError(ctx, v, err)
	}
	result, ended := readTermination(pod)
	if result == nil {
		result = c.readLog(ctx, pod).Result
	}
	switch {
	case result == nil && v.cancel: // it was killed before it wrote its result
		return c.endRequest(ctx, v, velerov1.PodVolumePhaseCanceled, "canceled", func(view) {})
	case result == nil:
		return c.failRequest(ctx, v, "the mover Pod ended without a result: %s", ended)
	}
	if err := c.noteRepository(ctx, v, result); err != nil {
		return err
	}
	if err := c.confirmPod(ctx, v, result); err != nil {
		return err
	}
	phase, message := endPhase(v, result)
	note := func(f view) {
		if result.Phase == outcome.Completed || result.Phase == outcome.PartiallyFailed {
			*f.progress = velerov1.DataMoveOperationProgress{BytesDone: result.Bytes, TotalBytes: result.Bytes}
		}
		f.setNode(pod.Spec.NodeName)
		switch r := f.Object.(type) {
		case *velerov1.PodVolumeBackup:
			r.Status.SnapshotID, r.Status.IncrementalBytes, r.Status.Path = result.SnapshotID, result.IncrementalBytes, volumePath
		case *v2alpha1.DataUpload:
			r.Status.SnapshotID, r.Status.IncrementalBytes, r.Status.Path = result.SnapshotID, result.IncrementalBytes, volumePath
		}
	}
	if v.kind != kindDownload || phase != velerov1.PodVolumePhaseCompleted && (result.Phase != outcome.PartiallyFailed || result.LacksContent()) {
		return c.endRequest(ctx, v, phase, message, note)
	}
	if _, err := c.writeStatus(ctx, v, func(f view) { note(f); *f.message = message }); err != nil {
		return err
	}
	return c.keepVolume(ctx, v)
}

// confirmPod makes a transfer fail that may not have had the volume: of a Pod that ends the node unmounts it, and a mover that
// starts just then finds an empty directory in its place. What is restored there is lost, and a backup finds nothing. A Pod that has
// seen the end of its restore had the volume.
func (c *Controller) confirmPod(ctx context.Context, v view, result *outcome.Result) error {
	isEmpty := v.kind == kindBackup && result.Files+result.Symlinks == 0 && result.Directories <= 1
	if result.Phase != outcome.Completed || !isEmpty && v.kind != kindRestore {
		return nil
	}
	pod, err := c.findPod(ctx, v)
	if err == nil && pod.DeletionTimestamp != nil {
		err = &moverpod.RefusalError{Reason: fmt.Sprintf("Pod %s/%s is being deleted", pod.Namespace, pod.Name)}
	}
	var refusal *moverpod.RefusalError
	_, inUse := v.settings[podvolume.SettingPaths]
	switch {
	case !errors.As(err, &refusal):
		return err
	case v.kind == kindRestore && !inUse && hasWaited(pod):
		return nil
	}
	result.Phase, result.Message = outcome.Failed, refusal.Reason+": whether the mover Pod had its volume is not known; repeat it"
	return nil
}

// hasWaited reports whether a restored Pod has seen that the data of all its volumes is there.
func hasWaited(pod *corev1.Pod) bool {
	return pod != nil && slices.ContainsFunc(pod.Status.InitContainerStatuses, func(s corev1.ContainerStatus) bool {
		return s.Name == waitContainer && s.State.Terminated != nil && s.State.Terminated.ExitCode == 0
	})
}

// endPhase is how a request ends by the result of its mover. A transfer that something is missing of has
// failed, though it may have a snapshot.
func endPhase(v view, result *outcome.Result) (velerov1.PodVolumePhase, string) {
	switch {
	case result.Phase == outcome.Completed && (v.kind == kindRestore || v.kind == kindDownload || result.SnapshotID != ""):
		return velerov1.PodVolumePhaseCompleted, explainReplaced(v, result)
	case result.Phase == outcome.Canceled && v.cancel:
		return velerov1.PodVolumePhaseCanceled, result.Message
	case result.Phase == outcome.Canceled:
		return velerov1.PodVolumePhaseFailed, "the mover Pod was stopped: " + result.Message
	}
	message := result.Message
	if result.NotEmpty {
		message += notEmptyRemedy
	}
	for i, e := range result.Lost() {
		if i == listedEntries {
			break
		}
		message += strings.TrimSuffix(fmt.Sprintf("; %s: %s: %s", e.Path, e.Rule, e.Error), ": ")
	}
	return velerov1.PodVolumePhaseFailed, message
}

// explainReplaced names entries with extended attributes that a restore has replaced; it is empty if there are none.
func explainReplaced(v view, result *outcome.Result) string {
	n := result.Rules[outcome.Attributes]
	if v.kind != kindRestore || n == 0 {
		return ""
	}
	message := fmt.Sprintf("entries that had ACLs or other extended attributes, which are lost: %d", n)
	for _, e := range result.Entries[:min(len(result.Entries), listedEntries)] {
		message += "; " + e.Path
	}
	return message
}

// readTermination returns the result that a mover left, or nil, and how its container ended.
func readTermination(pod *corev1.Pod) (*outcome.Result, string) {
	t := terminationOf(pod)
	if t == nil {
		return nil, strings.TrimSpace(fmt.Sprintf("%s %s", pod.Status.Reason, pod.Status.Message))
	}
	var result outcome.Result
	if json.Unmarshal([]byte(t.Message), &result) == nil && result.Phase != "" {
		return &result, ""
	}
	return nil, strings.TrimSpace(fmt.Sprintf("%s (exit code %d) %.512s", t.Reason, t.ExitCode, t.Message))
}

// terminationOf is how the container of a mover ended; nil while it has not.
func terminationOf(pod *corev1.Pod) *corev1.ContainerStateTerminated {
	for i := range pod.Status.ContainerStatuses {
		if s := &pod.Status.ContainerStatuses[i]; s.Name == moverpod.Container {
			return s.State.Terminated
		}
	}
	return nil
}

// cancelTransfer tells the mover to stop, and ends the request once it has.
func (c *Controller) cancelTransfer(ctx context.Context, v view, pod *corev1.Pod) (time.Duration, error) {
	if pod == nil || c.isPodLost(pod) {
		return 0, c.endRequest(ctx, v, velerov1.PodVolumePhaseCanceled, "canceled", func(view) {})
	}
	_, err := c.writeStatus(ctx, v, func(f view) {
		if *f.phase == velerov1.PodVolumePhaseInProgress {
			*f.phase = velerov1.PodVolumePhaseCanceling
		}
	})
	if err != nil {
		return 0, err
	}
	return waitInterval, c.deletePod(ctx, pod)
}
