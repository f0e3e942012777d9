package finalize

import (
	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
)

// appendCuts adds the ranges that are not of the backup's first revision.
func appendCuts(cuts []manifest.Cut, ranges []checkpoint.Range, main string) []manifest.Cut {
	for i := range ranges {
		r := &ranges[i]
		if r.Revision == main && r.Reason == "" {
			continue
		}
		if r.Last == r.After {
			continue // no object was listed
		}
		c := manifest.Cut{Kind: r.Kind, Revision: r.Revision, From: r.After, To: r.Last, Reason: r.Reason}
		if c.From == "" && r.Namespace != "" {
			c.From = r.Namespace + "/"
		}
		if n := len(cuts); n > 0 && isContinuedBy(&cuts[n-1], &c) {
			cuts[n-1].To = c.To
			continue
		}
		cuts = append(cuts, c)
	}
	return cuts
}

// isContinuedBy reports whether b begins where a ends.
func isContinuedBy(a, b *manifest.Cut) bool {
	return a.Kind == b.Kind && a.Revision == b.Revision && a.Reason == b.Reason && a.To == b.From && a.To != ""
}
