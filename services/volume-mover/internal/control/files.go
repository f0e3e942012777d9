package control

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/kube/podexec"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/files"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/moverpod"
)

const (
	// filesStart is how long the mover of a call may take to start, filesLimit how long a call may take in all.
	filesStart = 5 * time.Minute
	filesLimit = 2 * time.Hour
	// filesInterval is the time between two looks at a mover that starts.
	filesInterval = 500 * time.Millisecond
	// maxFiles is how many calls are served at once.
	maxFiles = 8
)

// Commands runs commands in mover Pods; a podexec.Client does.
type Commands interface {
	Stream(ctx context.Context, cmd *podexec.Command, stdout io.Writer) (stderr string, err error)
}

// errCut means that the answer of a mover has no end.
var errCut = fmt.Errorf("the connection to the mover Pod broke; try again: %w", errgrpc.ErrUnavailable)

// streamFiles sends the messages with which a mover of its own answers about files of a backup.
func streamFiles[M any, P interface {
	*M
	proto.Message
}](ctx context.Context, c *Controller, f moverpod.Files, send func(P) error) error {
	select {
	case c.fileCalls <- struct{}{}:
		defer func() { <-c.fileCalls }()
	default:
		return fmt.Errorf("%d calls read files already; try again: %w", maxFiles, errgrpc.ErrUnavailable)
	}
	ctx, cancel := context.WithTimeout(ctx, filesLimit)
	defer cancel()
	pod, command := moverpod.BuildFilesPod(c.Movers, "files-"+strings.ToLower(rand.Text()), f, filesLimit)
	defer c.leaveFiles(ctx, pod)
	if err := c.startFiles(ctx, f.Backup, pod); err != nil {
		return err
	}
	reader, writer := io.Pipe()
	go func() {
		stderr, err := c.Commands.Stream(ctx, &podexec.Command{Namespace: pod.Namespace, Pod: pod.Name, Container: moverpod.Container, Args: command}, writer)
		if answer := files.DecodeExit(podexec.ExitStatus(err), stderr); answer != nil {
			err = answer
		} else if err != nil {
			err = fmt.Errorf("mover Pod %s: %w: %w: %s", pod.Name, errgrpc.ErrUnavailable, err, stderr)
		}
		_ = writer.CloseWithError(err) // never fails
	}()
	err := forwardMessages(reader, send)
	if err == nil {
		_, _ = io.Copy(io.Discard, reader) // the end of the command; the answer is whole
	}
	cancel()
	_ = reader.CloseWithError(err) // never fails
	return err
}

// forwardMessages sends messages up to the empty one that ends them.
func forwardMessages[M any, P interface {
	*M
	proto.Message
}](r io.Reader, send func(P) error) error {
	in := bufio.NewReader(r)
	for {
		m := P(new(M))
		err := protodelim.UnmarshalFrom(in, m)
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return errCut
		case err != nil:
			return err
		case proto.Size(m) == 0:
			return nil
		}
		if err := send(m); err != nil {
			return err
		}
	}
}

// startFiles makes the mover Pod of a call and waits until it runs.
func (c *Controller) startFiles(ctx context.Context, backup string, pod *corev1.Pod) error {
	b := &velerov1.Backup{}
	if err := c.Reader.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: backup}, b); apierrors.IsNotFound(err) {
		return fmt.Errorf("backup %q: %w", backup, errgrpc.ErrNotFound)
	} else if err != nil {
		return err
	}
	begin := c.Clock.Now()
	err := c.startRepositoryPod(ctx, b.Spec.StorageLocation, pod)
	ticker := c.Clock.NewTicker(filesInterval)
	defer ticker.Stop()
	for err == nil && pod.Status.Phase != corev1.PodRunning {
		reason, patience := c.waitReason(pod)
		if hasEnded(pod) || min(patience, filesStart-c.Clock.Since(begin)) <= 0 {
			return fmt.Errorf("the mover Pod %s does not start: %s: %w", pod.Name, reason, errgrpc.ErrUnavailable)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C():
		}
		err = c.Reader.Get(ctx, client.ObjectKeyFromObject(pod), pod)
	}
	var refusal *moverpod.RefusalError
	if errors.As(err, &refusal) || apierrors.IsNotFound(err) || kube.IsRefused(err) {
		return fmt.Errorf("files of backup %q: %w: %w", backup, errgrpc.ErrPrecondition, err)
	}
	return err
}

// leaveFiles removes the mover Pod of a call.
func (c *Controller) leaveFiles(ctx context.Context, pod *corev1.Pod) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
	defer cancel()
	if err := c.removeRepositoryPod(ctx, pod); err != nil {
		c.Log.WarnContext(ctx, "Failed to remove a mover Pod; will retry when it has ended", "pod", pod.Name, "error", err)
	}
}

// RemoveLeftFiles removes the mover Pods whose call was killed, once they have ended, or never began in the time of a
// call: the deadline of a Pod counts from its start.
func (c *Controller) RemoveLeftFiles(ctx context.Context) error {
	pods := &corev1.PodList{}
	if err := c.Client.List(ctx, pods, client.InNamespace(c.Movers.Namespace), client.MatchingLabels{moverpod.LabelMover: moverpod.ValueFiles}); err != nil {
		return fmt.Errorf("list mover Pods: %w", err)
	}
	var errs []error
	for i := range pods.Items {
		pod := &pods.Items[i]
		if hasEnded(pod) || c.isPodLost(pod) || pod.Status.Phase != corev1.PodRunning && c.Clock.Since(pod.CreationTimestamp.Time) > filesLimit {
			errs = append(errs, c.removeRepositoryPod(ctx, pod))
		}
	}
	return errors.Join(errs...)
}
