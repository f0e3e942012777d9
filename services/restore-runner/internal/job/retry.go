package job

import (
	"context"
	"errors"
	"net"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/holdfast-io/holdfast/pkg/kube"
)

// retry repeats do while it fails because the API server or the network is away, until ctx ends.
func (j *job) retry(ctx context.Context, what string, do func() error) error {
	backoff := wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 16, Cap: 10 * time.Second}
	for {
		err := do()
		if err == nil || !transient(err) || ctx.Err() != nil {
			return err
		}
		j.log.Warn("call failed, trying again", "call", what, "error", err)
		timer := j.cfg.Clock.NewTimer(backoff.Step())
		select {
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
			return err
		}
	}
}

// transient tells that an error may go away by itself.
func transient(err error) bool {
	var verdict *fatalError
	if errors.As(err, &verdict) {
		return false
	}
	return kube.IsTransient(err)
}

func isNetwork(err error) bool {
	var network net.Error // *url.Error is one too
	return errors.As(err, &network)
}
