package pluginhost

import (
	"context"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast/pkg/kube/retry"
)

const (
	firstRetry = 5 * time.Second
	maxRetry   = 5 * time.Minute
)

// Run lists the plugins of binaries that failed to, with growing pauses, until all have
// answered. Sessions that are opened later have what was found. It returns when ctx ends, and is
// called once.
func (h *Host) Run(ctx context.Context) error {
	for pause := firstRetry; ; pause = min(2*pause, maxRetry) {
		if !slices.ContainsFunc(h.listings, func(l binaryListing) bool { return l.err != nil }) {
			<-ctx.Done()
			return nil
		}
		if retry.Pause(ctx, h.cfg.Clock, pause) != nil {
			return nil
		}
		h.retryListings(ctx)
	}
}

// retryListings retries each binary whose plugins could not be listed.
func (h *Host) retryListings(ctx context.Context) {
	for i := range h.listings {
		path := h.listings[i].path
		if h.listings[i].err == nil {
			continue
		}
		answer := h.listBinary(ctx, path)
		if ctx.Err() != nil {
			return
		}
		h.listings[i] = answer
		if answer.err != nil {
			h.cfg.Log.WarnContext(ctx, "Failed to list the plugins of a binary; will retry", "path", path, "error", answer.err)
			continue
		}
		h.cfg.Log.InfoContext(ctx, "Listed the plugins of a binary", "path", path, "plugins", len(answer.plugins))
	}
	h.arrangeCatalog()
}
