package s3store

import (
	"context"
	"fmt"

	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// Limits of S3 multipart uploads, and what we make of them.
const (
	minPart   = 5 << 20 // every part but the last
	maxCopy   = 4 << 30 // S3 allows 5 GiB for one copy
	maxParts  = 9000    // S3 allows 10,000
	maxMerged = 64 << 20
)

// partSource is one part of a multipart upload: a body to send, or pieces of objects. One piece
// alone is copied by the server; several are merged through this process.
type partSource struct {
	body   *uploadWindow
	pieces []objectstore.Source
	size   int64
}

// planParts turns sources into parts: pieces of at least smallest bytes are copied by the server, what
// lies between them is merged into parts of exactly smallest bytes. smallest grows until the number
// of parts fits.
func planParts(src []objectstore.Source) ([]partSource, error) {
	for smallest := int64(minPart); smallest <= maxMerged; smallest *= 2 {
		if parts := cutSources(src, smallest); len(parts) <= maxParts {
			return parts, nil
		}
	}
	return nil, fmt.Errorf("%w: too many small sources for %d parts", objectstore.ErrSize, maxParts)
}

func cutSources(src []objectstore.Source, smallest int64) []partSource {
	var parts []partSource
	var open partSource // merged part that is not full yet
	for _, s := range src {
		for size := sourceLength(s); size > 0; size = sourceLength(s) {
			if open.size == 0 && s.Data == nil && size >= smallest {
				n := min(size, maxCopy)
				if rest := size - n; rest > 0 && rest < smallest {
					n -= smallest // leaves a rest that is a part of its own
				}
				var head objectstore.Source
				head, s = splitSource(s, n)
				parts = append(parts, partSource{pieces: []objectstore.Source{head}, size: n})
				continue
			}
			head, rest := splitSource(s, min(size, smallest-open.size))
			open.pieces, open.size = append(open.pieces, head), open.size+sourceLength(head)
			s = rest
			if open.size == smallest {
				parts, open = append(parts, open), partSource{}
			}
		}
	}
	if open.size > 0 {
		parts = append(parts, open)
	}
	return parts
}

func sourceLength(s objectstore.Source) int64 {
	if s.Data != nil {
		return int64(len(s.Data))
	}
	return s.Length
}

// splitSource cuts s after n bytes.
func splitSource(s objectstore.Source, n int64) (head, rest objectstore.Source) {
	if s.Data != nil {
		return objectstore.Source{Data: s.Data[:n]}, objectstore.Source{Data: s.Data[n:]}
	}
	head, rest = s, s
	head.Length = n
	rest.Offset, rest.Length = s.Offset+n, s.Length-n
	return head, rest
}

// resolveSources checks sources and fills in lengths. Objects are asked for their size only where the
// caller did not give one; a given one is checked by the copy itself.
func resolveSources(ctx context.Context, from objectstore.Reader, src []objectstore.Source) ([]objectstore.Source, int64, error) {
	resolved := make([]objectstore.Source, 0, len(src))
	var total int64
	for i, piece := range src {
		if piece.Data == nil {
			if err := objectstore.CheckKey(piece.Key); err != nil {
				return nil, 0, fmt.Errorf("source %d: %w", i, err)
			}
			if piece.Length < 0 {
				info, err := from.Stat(ctx, piece.Key)
				if err != nil {
					return nil, 0, fmt.Errorf("source %d: %w", i, err)
				}
				if piece.Length = info.Size - piece.Offset; piece.Length < 0 {
					return nil, 0, fmt.Errorf("source %d: %w: %s: from %d of %d", i, objectstore.ErrInvalidRange, piece.Key, piece.Offset, info.Size)
				}
			}
			if piece.Offset < 0 {
				return nil, 0, fmt.Errorf("source %d: %w: %s: offset %d", i, objectstore.ErrInvalidRange, piece.Key, piece.Offset)
			}
		}
		total += sourceLength(piece)
		resolved = append(resolved, piece)
	}
	return resolved, total, nil
}
