package debug

import (
	"context"
	"errors"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/services/holdfast/internal/debug/scrub"
)

// logs adds the log of each container of the installation, and that of the container before it
// where it was started again.
func logs(ctx context.Context, a *archive, cfg Config) {
	pods := &corev1.PodList{}
	a.part(ctx, "logs", cfg.Timeout, func(ctx context.Context) error {
		return cfg.Reader.List(ctx, pods, client.InNamespace(cfg.Namespace), client.MatchingLabels{"app.kubernetes.io/part-of": "holdfast"})
	})
	for i := range pods.Items {
		pod := &pods.Items[i]
		for _, status := range append(append([]corev1.ContainerStatus{}, pod.Status.InitContainerStatuses...), pod.Status.ContainerStatuses...) {
			name := fmt.Sprintf("logs/%s/%s", pod.Name, status.Name)
			a.part(ctx, name+".log", cfg.Timeout, func(ctx context.Context) error {
				return oneLog(ctx, a, cfg, name+".log", pod.Name, status.Name, false)
			})
			if status.RestartCount > 0 {
				a.part(ctx, name+".previous.log", cfg.Timeout, func(ctx context.Context) error {
					return oneLog(ctx, a, cfg, name+".previous.log", pod.Name, status.Name, true)
				})
			}
		}
	}
}

func oneLog(ctx context.Context, a *archive, cfg Config, name, pod, container string, previous bool) error {
	body, err := cfg.Logs(ctx, pod, container, previous)
	if err != nil {
		return err
	}
	// A byte more shows that something was cut.
	data, err := io.ReadAll(io.LimitReader(body, fileBytes+1))
	err = errors.Join(err, body.Close())
	if len(data) > fileBytes {
		data = data[:fileBytes]
		err = errors.Join(err, fmt.Errorf("only the first %d bytes of the lines asked for are in it", fileBytes))
	}
	if len(data) > 0 {
		a.add(name, []byte(scrub.Text(string(data))))
	}
	return err
}
