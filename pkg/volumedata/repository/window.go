package repository

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/kopia/kopia/repo/blob"
	"github.com/kopia/kopia/repo/content"
	"k8s.io/utils/lru"

	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

const (
	// windowStep is the distance of the starts of two windows of a pack, in bytes.
	windowStep = 1 << 20
	// windowRange is the longest range that is taken from a window. Windows overlap by as much, so that one holds each
	// range whole that begins in it.
	windowRange = 128 << 10
	// windowsKept bounds the memory: 18 MiB.
	windowsKept = 16
	// windowsCounted is of how many windows the reads are known.
	windowsCounted = 4096
)

// packWindows keeps parts of packs, so that small files which lie side by side do not cost a call each. It is safe for
// concurrent use. Packs never change.
type packWindows struct {
	mu    sync.Mutex
	kept  *lru.Cache // *packWindow by windowKey
	reads *lru.Cache // by windowKey, how many ranges were read that were in no window
}

type windowKey struct {
	id    blob.ID
	index int64
}

// packWindow is a part of a pack.
type packWindow struct {
	mu   sync.Mutex
	data []byte // nil until it is read
}

// findWindow returns the window of a range, or nil if the range is to be read alone. A window begins with its second
// read: a pack of which one file is needed is not read for it. One that was displaced begins again after as many reads
// as it had, so that files in no order cost few windows in vain.
func (p *packWindows) findWindow(id blob.ID, offset, length int64) *packWindow {
	isPack := func(prefix blob.ID) bool { return strings.HasPrefix(string(id), string(prefix)) }
	if !slices.ContainsFunc(content.PackBlobIDPrefixes, isPack) || length <= 0 || length > windowRange {
		return nil
	}
	key := windowKey{id, offset / windowStep}
	p.mu.Lock()
	defer p.mu.Unlock()
	if w, ok := p.kept.Get(key); ok {
		return w.(*packWindow)
	}
	reads := 1
	if n, ok := p.reads.Get(key); ok {
		reads += n.(int)
	}
	p.reads.Add(key, reads)
	if reads == 1 || reads&(reads-1) != 0 {
		return nil
	}
	w := &packWindow{}
	p.kept.Add(key, w)
	return w
}

// cutRange returns a range of the window, or nil if the pack ends before. The window is read by the first caller, for
// which the others wait; after an error the next one tries.
func (w *packWindow) cutRange(ctx context.Context, store objectstore.Store, id blob.ID, offset, length int64) ([]byte, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	start := offset - offset%windowStep
	if w.data == nil {
		rc, err := store.GetRange(ctx, string(id), start, windowStep+windowRange)
		if err != nil {
			return nil, err
		}
		b := bytes.NewBuffer(make([]byte, 0, windowStep+windowRange+bytes.MinRead))
		_, err = b.ReadFrom(rc)
		if err = errors.Join(err, rc.Close()); err != nil {
			return nil, err
		}
		w.data = b.Bytes()
	}
	if offset += length - start; offset > int64(len(w.data)) {
		return nil, nil
	}
	return w.data[offset-length : offset], nil
}
