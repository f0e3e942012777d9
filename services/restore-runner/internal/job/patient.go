package job

import (
	"context"
	"sync/atomic"

	"github.com/holdfast-io/holdfast/pkg/manifest"
	"github.com/holdfast-io/holdfast/pkg/tarball"
)

// patient is a source whose reads are repeated while the store does not answer: a moment's outage would otherwise cost
// every object that is being read. Once it was waited for in vain, reads are tried only once until one succeeds again.
type patient struct {
	tarball.Source
	job  *job
	away atomic.Bool
}

// Read returns the body of an item. What is damaged is not read again.
func (p *patient) Read(ctx context.Context, item manifest.Item) ([]byte, error) {
	read := func() ([]byte, error) { return p.Source.Read(ctx, item) }
	if p.away.Load() {
		body, err := read()
		if err == nil {
			p.away.Store(false)
		}
		return body, err
	}
	body, err := again(ctx, p.job, "read "+item.Path, read)
	if err != nil && !damaged(err) && ctx.Err() == nil {
		p.away.Store(true)
	}
	return body, err
}
