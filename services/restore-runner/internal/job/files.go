package job

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/klauspost/compress/gzip"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
)

const (
	// explainLimit bounds the storing of the log of a failed restore.
	explainLimit = 10 * time.Second
	// cancelledLimit bounds the storing of the files of a cancelled one.
	cancelledLimit = 30 * time.Second
)

// workFiles are the files of one restore while they are in the work directory.
type workFiles struct {
	logFile *os.File
	log     *outcome.Log
}

func newFiles(dir string, restore *velerov1.Restore) (*workFiles, error) {
	f, err := os.Create(filepath.Join(dir, "log.gz"))
	if err != nil {
		return nil, err
	}
	return &workFiles{logFile: f, log: outcome.NewLog(f, restore.Namespace+"/"+restore.Name)}, nil
}

func (f *workFiles) close() { _ = f.logFile.Close() } // the work directory is removed

// storeFiles publishes the files of a restore whose end is decided.
func storeFiles(ctx context.Context, a *restoreAttempt) error {
	err := a.publishFiles(ctx, a.finished)
	var fatal *fatalError
	if errors.As(err, &fatal) {
		a.reportUnstored(ctx, "log, results and lists", err)
		return nil
	}
	return err
}

// publishFiles puts the files of the restore into the bucket, in Velero 1.18's order. As there, a file
// that cannot be stored does not change the outcome; it is logged. A restore that failed as a whole
// has its log only, and its operations; a cancelled one has them all.
func (a *restoreAttempt) publishFiles(ctx context.Context, end *outcome.Finished) error {
	in := a.inputs
	if err := in.recorder.Files().CloseLog(); err != nil {
		return fatalErrorf("write the log: %w", err)
	}
	if a.undecided || in.records.readOnly {
		a.reportUnstored(ctx, "log, results and lists", errors.New("the location cannot be written, nor can another one that is the default"))
		return nil
	}
	name := a.restore.Name
	if err := a.uploadFile(ctx, layout.RestoreLog(name), in.files.logFile); err != nil {
		return err
	}
	if end.Phase == velerov1.RestorePhaseFailed && !end.Cancelled {
		if in.operations == nil {
			return nil
		}
		return a.publishOne(ctx, layout.RestoreItemOperations(name), a.writeOperations)
	}
	for _, part := range []struct {
		key   string
		write func(io.Writer) error
	}{
		{layout.RestoreResults(name), in.recorder.Files().WriteResults},
		{layout.RestoreResourceList(name), in.recorder.Files().WriteResourceList},
		{layout.RestoreItemOperations(name), a.writeOperations},
		{layout.RestoreVolumeInfo(name), func(w io.Writer) error { return in.recorder.Files().WriteVolumeInfo(w, a.listFilled(ctx)) }},
	} {
		if err := a.publishOne(ctx, part.key, part.write); err != nil {
			return err
		}
	}
	return nil
}

// publishOne compresses one document in the work directory and stores it.
func (a *restoreAttempt) publishOne(ctx context.Context, key string, write func(io.Writer) error) (err error) {
	file, err := os.CreateTemp(a.inputs.dir, "file-")
	if err != nil {
		return fatalErrorf("write %s: %w", key, err)
	}
	defer func() { err = errors.Join(err, file.Close(), os.Remove(file.Name())) }()
	buffer := bufio.NewWriter(file)
	zip := gzip.NewWriter(buffer)
	if err := errors.Join(write(zip), zip.Close(), buffer.Flush()); err != nil {
		return fatalErrorf("write %s: %w", key, err)
	}
	return a.uploadFile(ctx, key, file)
}

// uploadFile stores a file. One that was stored by an interrupted holder, or by a former restore of the
// same name, is replaced.
func (a *restoreAttempt) uploadFile(ctx context.Context, key string, file *os.File) error {
	failpoint.Hit("restore-runner/before-file")
	if err := a.held.Confirm(ctx); err != nil {
		return fmt.Errorf("store %s: %w", key, err)
	}
	size, err := file.Seek(0, io.SeekEnd)
	if err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err != nil {
		return fatalErrorf("read %s: %w", key, err)
	}
	err = a.inputs.recordStore.Put(ctx, key, file, size)
	if errors.Is(err, claim.ErrLost) {
		return err
	}
	if ctx.Err() != nil {
		return fmt.Errorf("store %s: %w", key, context.Cause(ctx))
	}
	if err != nil {
		a.reportUnstored(ctx, key, err)
	}
	failpoint.Hit("restore-runner/after-file")
	return nil
}

// reportUnstored reports files that the restore does not leave in the bucket.
func (a *restoreAttempt) reportUnstored(ctx context.Context, what string, err error) {
	a.log.ErrorContext(ctx, "Failed to store files of the restore", "files", what, "error", err)
	mark.RecordWarning(a.cfg.Events, a.restore, "FilesNotStored", "End", fmt.Sprintf("%s not stored in location %q: %v", what, a.inputs.recordsAt, err))
}
