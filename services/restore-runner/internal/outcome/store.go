package outcome

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/holdfast-io/holdfast/pkg/job/journal"
)

// Store writes one file of records.
type Store interface {
	// Add makes a file durable. After an error it may be called again, with the same data.
	Add(ctx context.Context, data []byte) error
}

// Journal stores records in the bucket, fenced by the epoch of the claim.
type Journal struct{ *journal.Journal }

// Add implements Store.
func (j Journal) Add(ctx context.Context, data []byte) error {
	_, err := j.Append(ctx, data)
	return err
}

// Dir stores records as files, for locations that are read-only. No runner resumes from them; they
// are for people.
type Dir struct {
	Path string
	next int64
}

// Add implements Store.
func (d *Dir) Add(_ context.Context, data []byte) error {
	name := filepath.Join(d.Path, fmt.Sprintf("record-%010d.json.gz", d.next+1))
	if err := os.WriteFile(name, data, 0o600); err != nil {
		return fmt.Errorf("%w: %w", ErrWorkDir, err)
	}
	d.next++
	return nil
}
