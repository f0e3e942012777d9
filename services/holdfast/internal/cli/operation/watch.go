package operation

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	operationv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/operation/v1"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/command"
)

// maxShown bounds the operations on a terminal; running ones come first.
const maxShown = 30

// operationWatcher shows the operations of a job as they change.
type operationWatcher struct {
	options
	who     jobOwner
	known   []*operationv1.Operation // in the order in which they were received first
	at      map[string]int           // index in known
	updated map[int]bool             // received since the last display, and different
	phase   string
	shown   bool
}

// NewWatchCommand returns `operation watch`.
func NewWatchCommand(g *command.Global) *cobra.Command {
	w := &operationWatcher{options: newOptions(g)}
	cmd := &cobra.Command{
		Use:   "watch " + ownerUse,
		Short: "Show the operations of a backup or restore and every change of them, until it has ended",
		Long: `Shows the operations of a backup or restore and every change of them, until it
has ended. On a terminal the screen is redrawn, running operations
first; elsewhere the operations that changed are printed, a line each.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if w.who, err = parseOwner(args[0]); err != nil {
				return err
			}
			w.at, w.updated = map[string]int{}, map[int]bool{}
			return w.withConnection(func() error { return w.remote.KeepWatching(cmd.Context(), w.Global, &w.shown, w.followStream) })
		},
	}
	w.bindFlags(cmd.Flags())
	return cmd
}

// followStream shows one stream.
func (w *operationWatcher) followStream(ctx context.Context) error {
	req := &operationv1.WatchOperationsRequest{Owner: &operationv1.WatchOperationsRequest_Backup{Backup: w.who.backup}}
	if w.who.restore != "" {
		req.Owner = &operationv1.WatchOperationsRequest_Restore{Restore: w.who.restore}
	}
	stream, err := w.api.WatchOperations(ctx, req)
	if err != nil {
		return err
	}
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		w.applyMessage(m)
		if !m.GetComplete() {
			continue
		}
		if err := w.displayState(m.GetJobPhase()); err != nil {
			return err
		}
	}
}

// applyMessage applies a message. A new stream repeats what is known.
func (w *operationWatcher) applyMessage(m *operationv1.WatchOperationsResponse) {
	for _, o := range m.GetChanged() {
		key := strings.Join([]string{o.GetAction(), o.GetId(), o.GetGroupResource(), o.GetNamespace(), o.GetName()}, "\x00")
		i, known := w.at[key]
		if !known {
			i = len(w.known)
			w.at[key], w.known = i, append(w.known, nil)
		}
		if !known || o.String() != w.known[i].String() {
			w.known[i], w.updated[i] = o, true
		}
	}
}

// displayState shows the present state, or what changed in it.
func (w *operationWatcher) displayState(phase string) error {
	moved := w.phase != phase
	w.phase, w.shown = phase, true
	defer clear(w.updated)
	if w.Live {
		w.Printf("\x1b[H\x1b[2J%s: %s, %s\n\n", w.who, phaseOr(phase), w.countText())
		return w.displayTable()
	}
	if moved {
		w.Printf("%s\t%s\n", w.who, phaseOr(phase))
	}
	for i, o := range w.known {
		if e := newEntry(o); w.updated[i] {
			w.Printf("%s\n", strings.Join(e.tableRow(w.Clock.Now()), "\t"))
		}
	}
	return nil
}

func phaseOr(phase string) string {
	if phase == "" {
		return "New"
	}
	return phase
}

func (w *operationWatcher) countText() string {
	completed, failed := 0, 0
	for _, o := range w.known {
		switch o.GetPhase() {
		case operationv1.OperationPhase_OPERATION_PHASE_COMPLETED:
			completed++
		case operationv1.OperationPhase_OPERATION_PHASE_FAILED:
			failed++
		default:
		}
	}
	return fmt.Sprintf("%d of %d operations completed, %d failed", completed, len(w.known), failed)
}

// displayTable shows what runs, then what failed, then the rest.
func (w *operationWatcher) displayTable() error {
	if len(w.known) == 0 {
		return nil
	}
	list := newList(w.known).Operations
	slices.SortStableFunc(list, func(a, b Entry) int { return entryRank(&a) - entryRank(&b) })
	if err := (&command.Output{}).PrintTable(w.Out, tableHeader(), nil, w.tableRows(list[:min(len(list), maxShown)])); err != nil {
		return err
	}
	if more := len(list) - maxShown; more > 0 {
		w.Printf("and %d more\n", more)
	}
	return nil
}

func entryRank(e *Entry) int {
	return map[string]int{"InProgress": 0, "New": 1, "Failed": 2, "Completed": 3}[e.Phase]
}
