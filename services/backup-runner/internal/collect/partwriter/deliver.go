package partwriter

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/holdfast-io/holdfast/pkg/archive/part"
	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/job/journal"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
)

// deliverBatch uploads a batch, then records it. The spool stays in the work directory, where actions
// read it.
func (c *Config) deliverBatch(ctx context.Context, b *partBatch) error {
	defer removeFiles(b.part)
	if b.spool != nil {
		if err := c.createObject(ctx, b.record.Spool.Key, *b.spool); err != nil {
			return err
		}
	}
	if b.part != nil {
		if err := c.uploadPart(ctx, b.part, &b.record.Part); err != nil {
			return err
		}
	}
	failpoint.Hit("backup-runner/part-uploaded")
	err := c.recordPart(ctx, &b.record)
	if errors.Is(err, journal.ErrFenced) {
		c.withdrawObjects(ctx, &b.record)
	}
	return err
}

// withdrawObjects removes what no record will ever name: the sweep of the holder that closed the epoch may
// have been there before it. It is best effort.
func (c *Config) withdrawObjects(ctx context.Context, record *checkpoint.Record) {
	keys := []string{record.Part.Key, record.Part.SidecarKey}
	if record.Spool != nil {
		keys = append(keys, record.Spool.Key)
	}
	for _, key := range keys {
		if key == "" {
			continue
		}
		if err := c.Store.Delete(ctx, key); err != nil {
			c.Log.WarnContext(ctx, "Failed to delete a part that no record names; a sweep removes it", "key", key, "error", err)
		}
	}
}

// recordPart makes it durable that the part is.
func (c *Config) recordPart(ctx context.Context, record *checkpoint.Record) error {
	key, err := c.Records.Append(ctx, *record)
	if err != nil {
		return err
	}
	failpoint.Hit("backup-runner/part-recorded")
	c.Sealed(key, &record.Part)
	return nil
}

// removeFiles is best effort: the job's directory is removed at its end.
func removeFiles(sealed *part.Sealed) {
	if sealed == nil {
		return
	}
	_ = os.Remove(sealed.Data.Path)
	_ = os.Remove(sealed.Sidecar.Path)
}

// describePart returns the record of a part.
func describePart(sealed *part.Sealed, key string) checkpoint.Part {
	ref := checkpoint.Part{
		SidecarKey: layout.Sidecar(key), SidecarSize: sealed.Sidecar.Size, SidecarSHA256: sealed.Sidecar.SHA256,
		Items: sealed.Items + sealed.Failed, Warnings: sealed.Warnings, Errors: sealed.Errors,
	}
	if sealed.Data.Size > 0 {
		ref.Key, ref.Size, ref.SHA256 = key, sealed.Data.Size, sealed.Data.SHA256
	}
	return ref
}

// objectKey returns the key of the n-th object of a series of a writer.
func (c *Config) objectKey(series string, writer, n int) string {
	return layout.Part(c.Backup, c.UID, c.Epoch, fmt.Sprintf("%s%d", series, writer), 1, n)
}

func (c *Config) uploadPart(ctx context.Context, sealed *part.Sealed, ref *checkpoint.Part) error {
	if ref.Key != "" {
		failpoint.Hit("backup-runner/part-sealed")
		if err := c.createObject(ctx, ref.Key, sealed.Data); err != nil {
			return err
		}
		failpoint.Hit("backup-runner/part-without-sidecar")
	}
	return c.createObject(ctx, ref.SidecarKey, sealed.Sidecar)
}

func (c *Config) createObject(ctx context.Context, key string, f part.File) (err error) {
	file, err := os.Open(f.Path)
	if err != nil {
		return fmt.Errorf("upload %s: %w", key, err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if err := c.Store.Create(ctx, key, file, f.Size); err != nil {
		return fmt.Errorf("upload %s: %w", key, err)
	}
	return nil
}
