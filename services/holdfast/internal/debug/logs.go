package debug

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// writeLogs adds the log of each container of the installation, and that of the container before it
// where it was started again.
func writeLogs(ctx context.Context, a *bundleArchive, cfg Config) {
	pods := &corev1.PodList{}
	a.runPart(ctx, "logs", cfg.Timeout, func(ctx context.Context) error {
		return cfg.Reader.List(ctx, pods, client.InNamespace(cfg.Namespace), client.MatchingLabels{"app.kubernetes.io/part-of": "holdfast"})
	})
	for i := range pods.Items {
		pod := &pods.Items[i]
		for _, status := range append(append([]corev1.ContainerStatus{}, pod.Status.InitContainerStatuses...), pod.Status.ContainerStatuses...) {
			name := fmt.Sprintf("logs/%s/%s", pod.Name, status.Name)
			a.runPart(ctx, name+".log", cfg.Timeout, func(ctx context.Context) error {
				return addContainerLog(ctx, a, cfg, name+".log", pod.Name, status.Name, false)
			})
			if status.RestartCount > 0 {
				a.runPart(ctx, name+".previous.log", cfg.Timeout, func(ctx context.Context) error {
					return addContainerLog(ctx, a, cfg, name+".previous.log", pod.Name, status.Name, true)
				})
			}
		}
	}
}

func addContainerLog(ctx context.Context, a *bundleArchive, cfg Config, name, pod, container string, previous bool) error {
	body, err := cfg.Logs(ctx, pod, container, previous)
	if err != nil {
		return err
	}
	data, cut, err := lastLines(body, fileBytes)
	err = errors.Join(err, body.Close())
	if cut {
		err = errors.Join(err, fmt.Errorf("only the last %d bytes of the lines asked for are in it", len(data)))
	}
	if len(data) > 0 {
		a.addFile(name, []byte(scrubText(string(data))))
	}
	return err
}

// lastLines returns the last lines of r that have at most limit bytes together, and whether others
// were before them. It holds little more than two limits in memory. Every line is whole: of a part
// of a line nothing shows which of it is secret.
func lastLines(r io.Reader, limit int) (lines []byte, cut bool, err error) {
	const block = 32 << 10
	kept, read := make([]byte, 0, block), make([]byte, block)
	for err == nil {
		var n int
		n, err = r.Read(read)
		kept = append(kept, read[:n]...)
		if len(kept) > 2*limit+1 {
			kept, cut = append(kept[:0], kept[len(kept)-limit-1:]...), true
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	} else {
		kept = kept[:bytes.LastIndexByte(kept, '\n')+1]
	}
	if len(kept) <= limit && !cut {
		return kept, false, err
	}
	// The byte before the limit shows whether a line begins there.
	kept = kept[max(0, len(kept)-limit-1):]
	if i := bytes.IndexByte(kept, '\n'); i >= 0 {
		return kept[i+1:], true, err
	}
	return nil, true, err
}
