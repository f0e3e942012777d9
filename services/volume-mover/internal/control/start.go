package control

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/apis/velero/v2alpha1"
	"github.com/holdfast-io/holdfast/pkg/extension/podvolume"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/moverpod"
)

// Keys of uploaderSettings. The first two are Velero's.
const (
	settingUploads   = "ParallelFilesUpload"
	settingDownloads = "ParallelFilesDownload"
	// settingOverwrite ("true") lets the volume that is restored hold entries.
	settingOverwrite = "Overwrite"
)

// errNoImage is why no mover starts.
var errNoImage = &moverpod.RefusalError{Reason: "volume-mover has no image for mover Pods (--mover-image)"}

// maxParallel is how many files a mover transfers at once at most.
const maxParallel = 64

// startMover makes the mover Pod.
func (c *Controller) startMover(ctx context.Context, v view) (time.Duration, error) {
	if v.isPreparing() && c.prepareTime(v) <= 0 {
		return 0, c.failRequest(ctx, v, "the mover Pod could not be made in %s", c.PrepareTimeout)
	}
	pod, err := c.planMover(ctx, v)
	if err == nil {
		err = c.createMover(ctx, v, pod)
	}
	var notReady *notReadyError
	switch {
	case errors.As(err, &notReady) && c.prepareTime(v) > time.Second:
		return time.Second, nil
	case errors.As(err, &notReady):
		return 0, c.failRequest(ctx, v, "%v in %s", err, c.PrepareTimeout)
	case isOverQuota(err) && c.prepareTime(v) > retryInterval: // Pods that end make room
		c.Log.InfoContext(ctx, "A quota has no room for a mover Pod; will retry", v.logArgs("error", err)...)
		return retryInterval, nil
	case err != nil:
		return 0, c.settleError(ctx, v, err)
	}
	return max(c.prepareTime(v), waitInterval), nil
}

// notReadyError is that something which a mover Pod takes is not there yet.
type notReadyError struct{ reason string }

func (e *notReadyError) Error() string { return e.reason }

// isOverQuota reports whether a ResourceQuota has no room for an object now.
func isOverQuota(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota")
}

// prepareTime is how much time its mover has to start.
func (c *Controller) prepareTime(v view) time.Duration {
	begin := v.GetCreationTimestamp().Time
	if *v.accepted != nil {
		begin = (*v.accepted).Time
	}
	return c.PrepareTimeout - c.Clock.Since(begin)
}

// settleError fails the request for an error that lasts, and returns any other.
func (c *Controller) settleError(ctx context.Context, v view, err error) error {
	var refusal *moverpod.RefusalError
	if errors.As(err, &refusal) || apierrors.IsNotFound(err) || kube.IsRefused(err) {
		return c.failRequest(ctx, v, "%v", err)
	}
	return err
}

// planMover returns the mover Pod of a request.
func (c *Controller) planMover(ctx context.Context, v view) (*corev1.Pod, error) {
	if c.Movers.Image == "" {
		return nil, errNoImage
	}
	switch r := v.Object.(type) {
	case *v2alpha1.DataUpload:
		return c.planUpload(ctx, v, r)
	case *v2alpha1.DataDownload:
		return c.planDownload(ctx, v, r)
	}
	pod, err := c.findPod(ctx, v)
	switch {
	case err != nil:
		return nil, err
	case pod.Spec.NodeName != v.moverNode():
		return nil, &moverpod.RefusalError{Reason: fmt.Sprintf("Pod %s/%s is on node %q and not on %q", pod.Namespace, pod.Name, pod.Spec.NodeName, v.moverNode())}
	case v.mover == moverpod.ValueBackup && pod.Status.Phase != corev1.PodRunning:
		return nil, &moverpod.RefusalError{Reason: fmt.Sprintf("Pod %s/%s does not run", pod.Namespace, pod.Name)}
	}
	volume, err := moverpod.FindVolume(ctx, c.Reader, c.KubeletRoot, pod, v.volume)
	if err != nil {
		return nil, err
	}
	args, err := moverArgs(v, volume)
	if err != nil {
		return nil, err
	}
	return moverpod.BuildPod(c.Movers, moverpod.Mover{
		Name: v.GetName(), Owners: []metav1.OwnerReference{v.ownerReference()}, Labels: moverpod.BuildLabels(v.mover, v.GetName()), Node: v.moverNode(), Directory: volume.Directory,
		ReadOnly: v.mover == moverpod.ValueBackup, Args: args,
	}), nil
}

func moverArgs(v view, volume moverpod.Volume) ([]string, error) {
	var args []string
	setting := settingUploads
	if r, ok := v.Object.(*velerov1.PodVolumeRestore); ok {
		paths, err := podvolume.PathsOf(v.settings)
		if err != nil {
			return nil, &moverpod.RefusalError{Reason: err.Error()}
		}
		setting = settingDownloads
		restore := moverpod.Restore{Namespace: v.namespace, Snapshot: r.Spec.SnapshotID, Overwrite: r.Spec.UploaderSettings[settingOverwrite] == "true", Paths: paths}
		if len(paths) == 0 {
			if len(r.OwnerReferences) == 0 {
				return nil, &moverpod.RefusalError{Reason: "there is no owner, whose UID the restored Pod waits for"}
			}
			restore.DoneFile = string(r.OwnerReferences[0].UID)
		}
		args = restore.BuildArgs()
	} else {
		u := moverpod.Upload{Namespace: v.namespace, Pod: v.pod.Name, Volume: v.volume}
		if volume.Claim != nil {
			u.Volume, u.ClaimUID = volume.Claim.Name, string(volume.Claim.UID)
		}
		args = u.BuildArgs()
	}
	return append(args, v.parallelArgs(setting)...), nil
}

// parallelArgs are the arguments for how many files are transferred at once.
func (v view) parallelArgs(setting string) []string {
	if n, err := strconv.Atoi(v.settings[setting]); err == nil && n > 0 {
		return []string{"--parallel", strconv.Itoa(min(n, maxParallel))}
	}
	return nil
}

// createMover creates the Secret and the Pod.
func (c *Controller) createMover(ctx context.Context, v view, pod *corev1.Pod) error {
	loc := &velerov1.BackupStorageLocation{}
	if err := c.Reader.Get(ctx, client.ObjectKey{Namespace: v.GetNamespace(), Name: v.location}, loc); err != nil {
		return fmt.Errorf("backup storage location %q: %w", v.location, err)
	}
	password, err := c.readPassword(ctx)
	if err != nil {
		return err
	}
	secret, err := moverpod.BuildSecret(ctx, c.Reader, c.Movers, pod, loc, password)
	if err != nil {
		return err
	}
	if err := c.createOwned(ctx, v, secret); err != nil {
		return err
	}
	if err := c.createOwned(ctx, v, pod); err != nil {
		if kube.IsRefused(err) {
			return explainRefusal(err, pod)
		}
		return err
	}
	c.Log.InfoContext(ctx, "Started a mover Pod", v.logArgs("node", pod.Spec.NodeName)...)
	return nil
}

// createOwned creates an object of the request. One that an earlier attempt created is left as it is.
func (c *Controller) createOwned(ctx context.Context, v view, object client.Object) error {
	err := c.Client.Create(ctx, object)
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	if err := c.Reader.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
		return fmt.Errorf("read again: %w", err)
	}
	if !metav1.IsControlledBy(object, v) {
		return &moverpod.RefusalError{Reason: fmt.Sprintf("%T %s/%s exists and is not its mover's", object, object.GetNamespace(), object.GetName())}
	}
	return nil
}

// podSecurity is what the API server says of a Pod that the Pod security standard of its namespace forbids.
const podSecurity = "violates PodSecurity"

// explainRefusal says what to do about a mover Pod that was refused.
func explainRefusal(err error, pod *corev1.Pod) error {
	if !strings.Contains(err.Error(), podSecurity) {
		return fmt.Errorf("the mover Pod was refused: %w", err)
	}
	return fmt.Errorf("the mover Pod was refused: namespace %s lacks the label pod-security.kubernetes.io/enforce: privileged, which Pods that read volumes of a node need: %w", pod.Namespace, err)
}
