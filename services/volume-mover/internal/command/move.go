// Package command is the command line of volume-mover: what a mover Pod and an init container run.
package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"github.com/holdfast-io/holdfast/pkg/telemetry"
	"github.com/holdfast-io/holdfast/pkg/volumedata/repository"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/maintain"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/outcome"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/request"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/restore"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/upload"
)

// Exit codes of `volume-mover move`, `forget` and `maintain`.
const (
	// ExitCompleted: the phase is Completed.
	ExitCompleted = 0
	// ExitFailed: the phase is Failed or PartiallyFailed.
	ExitFailed = 1
	// ExitUsage: the request is not valid, and there is no result.
	ExitUsage = 2
	// ExitCanceled: the phase is Canceled.
	ExitCanceled = 3
)

const (
	// storePatience is how long calls of the object store that fail for a while are repeated.
	storePatience = 2 * time.Minute
	// progressInterval is how often progress is reported.
	progressInterval = 5 * time.Second
	// maxTermination is how much of a termination log Kubernetes keeps.
	maxTermination = 4096
	// maxPassword is the longest password that is read.
	maxPassword = 64 << 10
)

// Execute runs the command line and returns its exit code. Reports go to stdout as JSON, one on each
// line, under "progress" or, on the last line, "result"; logs and errors of the request go to stderr.
func Execute(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	m := &mover{clock: clock.RealClock{}, stdout: stdout, lines: json.NewEncoder(stdout), stderr: stderr}
	root := &cobra.Command{Use: "volume-mover", Short: "Moves the data of volumes", Version: telemetry.Version(), SilenceUsage: true, SilenceErrors: true}
	root.AddCommand(m.newMoveCommand(), m.newWaitCommand(), m.newForgetCommand(), m.newMaintainCommand(), m.newFilesCommand())
	root.SetArgs(args)
	root.SetOut(stderr)
	root.SetErr(stderr)
	if err := root.ExecuteContext(ctx); err != nil {
		_, _ = fmt.Fprintln(stderr, "error:", err)
		return ExitUsage
	}
	return m.exit
}

// mover makes one transfer, or waits for one.
type mover struct {
	clock  clock.WithTickerAndDelayedExecution
	stdout io.Writer
	stderr io.Writer
	exit   int

	mu    sync.Mutex
	lines *json.Encoder // to stdout
}

// outputLine is one line of the output.
type outputLine struct {
	Progress *outcome.Progress `json:"progress,omitempty"`
	Result   *outcome.Result   `json:"result,omitempty"`
}

func (m *mover) printLine(l outputLine) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lines.Encode(l)
}

// runRequest makes the transfer and prints its result. The error is that of a request that is not valid.
func (m *mover) runRequest(ctx context.Context, req request.Request) error {
	if err := req.Validate(); err != nil {
		return err
	}
	limitMemory(req)
	rec := &outcome.Recorder{}
	stop := m.reportProgress(rec)
	result := m.runTransfer(ctx, req, rec)
	stop()
	switch result.Phase {
	case outcome.Completed:
		m.exit = ExitCompleted
	case outcome.Canceled:
		m.exit = ExitCanceled
	default:
		m.exit = ExitFailed
	}
	p := rec.Progress()
	if err := errors.Join(m.printLine(outputLine{Progress: &p}), m.printLine(outputLine{Result: &result})); err != nil {
		_, _ = fmt.Fprintln(m.stderr, "error: the result cannot be written:", err)
	}
	if req.ResultFile != "" {
		if err := writeResult(req.ResultFile, result); err != nil {
			_, _ = fmt.Fprintln(m.stderr, "error: the result cannot be written:", err)
		}
	}
	return nil
}

// writeResult writes the result to a termination log.
func writeResult(path string, result outcome.Result) error {
	data, err := result.EncodeWithin(maxTermination)
	if err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o600)
}

// reportProgress prints progress until the function that it returns is called.
func (m *mover) reportProgress(rec *outcome.Recorder) (stop func()) {
	ended := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		ticker := m.clock.NewTicker(progressInterval)
		defer ticker.Stop()
		for {
			select {
			case <-ended:
				return
			case <-ticker.C():
				p := rec.Progress()
				_ = m.printLine(outputLine{Progress: &p}) // the result shows whether anybody reads
			}
		}
	})
	return func() { close(ended); done.Wait() }
}

// runTransfer opens the repository and makes the transfer.
func (m *mover) runTransfer(ctx context.Context, req request.Request, rec *outcome.Recorder) (result outcome.Result) {
	asked := ctx
	defer func() {
		switch {
		case result.Phase == outcome.Canceled && asked.Err() == nil: // by the repository
			result.Phase = outcome.Failed
		case result.Phase == outcome.Failed && asked.Err() != nil:
			result.Phase, result.Message = outcome.Canceled, fmt.Sprintf("canceled (%v): %s", context.Cause(asked), result.Message)
		}
	}()
	failed := func(err error) outcome.Result { return outcome.Result{Phase: outcome.Failed, Message: err.Error()} }
	at, err := m.openWorkspace(ctx, req, "info")
	if err != nil {
		return failed(err)
	}
	defer at.close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r, err := at.openRepository(ctx, req, cancel)
	switch {
	case req.Forget != nil && errors.Is(err, repository.ErrAbsent): // and all snapshots with it
		return outcome.Result{Phase: outcome.Completed}
	case err != nil:
		result = failed(fmt.Errorf("repository of namespace %s: %w", req.Namespace, err))
		result.Unopened = true
		return result
	}
	defer func() {
		if err := r.Close(context.WithoutCancel(ctx)); err != nil {
			at.log.Warn("Failed to close the repository", "error", err)
		}
	}()
	if u := req.Upload; u != nil {
		return upload.Run(ctx, r, upload.Spec{
			Path: u.Source, Source: req.Source(), Parallel: req.Parallel, CheckpointInterval: u.CheckpointInterval.Duration, Clock: m.clock,
		}, rec)
	}
	if f := req.Forget; f != nil {
		if err := r.ForgetSnapshots(ctx, f.Snapshots); err != nil {
			return failed(fmt.Errorf("repository of namespace %s: %w", req.Namespace, err))
		}
		return outcome.Result{Phase: outcome.Completed}
	}
	if o := req.Maintain; o != nil {
		if o.Mode == maintain.ModeCreate {
			return outcome.Result{Phase: outcome.Completed}
		}
		return maintain.Run(ctx, r, maintain.Spec{
			Location: at.store, Namespace: req.Namespace, Holder: o.Holder, Mode: o.Mode, FullInterval: o.FullInterval.Duration, Clock: m.clock,
		})
	}
	result = restore.Run(ctx, r, restore.Spec{
		SnapshotID: req.Restore.Snapshot, Path: req.Restore.Target, Overwrite: req.Restore.Overwrite, DeleteExtra: req.Restore.DeleteExtra, Paths: req.Restore.Paths, Parallel: req.Parallel,
	}, rec)
	markDone(req.Restore, &result)
	return result
}
