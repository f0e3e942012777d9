package queue

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	queuev1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/queue/v1"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/command"
)

// queueWatcher shows the queue as it changes.
type queueWatcher struct {
	Options
	known   map[string]*queuev1.QueueEntry // by UID, as received
	updated map[string]bool                // received since the last display
	gone    []string                       // names of what left since then
	shown   bool
}

// NewWatchCommand returns `queue watch`.
func NewWatchCommand(g *command.Global) *cobra.Command {
	w := &queueWatcher{Options: newOptions(g)}
	cmd := &cobra.Command{
		Use:   "watch",
		Short: "Show the queue and every change of it, until interrupted",
		Long: `Shows the queue and every change of it, at most once a second, until interrupted.
On a terminal the screen is redrawn; elsewhere the entries that changed are
printed. With -o every state is a whole document.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return w.withConnection(func() error {
				return w.Remote.Explain(w.Remote.KeepWatching(cmd.Context(), w.Global, &w.shown, w.followStream))
			})
		},
	}
	w.BindFlags(cmd.Flags())
	return cmd
}

// followStream shows one stream, from its first state on.
func (w *queueWatcher) followStream(ctx context.Context) error {
	stream, err := w.api.WatchQueue(ctx, &queuev1.WatchQueueRequest{})
	if err != nil {
		return err
	}
	old := w.known
	w.known, w.updated, w.gone = map[string]*queuev1.QueueEntry{}, map[string]bool{}, nil
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		if err := w.applyMessage(m); err != nil {
			return err
		}
		if !m.GetComplete() {
			continue
		}
		for uid, e := range old { // what left while there was no connection
			if w.known[uid] == nil {
				w.gone = append(w.gone, e.GetName())
			}
		}
		old = nil
		if err := w.displayState(); err != nil {
			return err
		}
		clear(w.updated)
		w.gone = nil
	}
}

// applyMessage applies a message.
func (w *queueWatcher) applyMessage(m *queuev1.WatchQueueResponse) error {
	for _, uid := range m.GetRemovedUids() {
		if e := w.known[uid]; e != nil {
			w.gone = append(w.gone, e.GetName())
		}
		delete(w.known, uid)
	}
	for _, e := range m.GetChanged() {
		if err := w.checkNamespace(e); err != nil {
			return err
		}
		w.known[e.GetUid()], w.updated[e.GetUid()] = e, true
	}
	return nil
}

// displayState shows the present state, or what changed in it.
func (w *queueWatcher) displayState() error {
	first := !w.shown
	w.shown = true
	list := w.currentList()
	switch {
	case !w.Output.IsText():
		return w.printList(list)
	case w.Live:
		w.Printf("\x1b[H\x1b[2J")
		return w.printList(list)
	case first:
		return w.printList(list)
	}
	changed := slices.DeleteFunc(list.Entries, func(e Entry) bool { return !w.updated[e.UID] })
	for i := range changed {
		w.Printf("%s\n", strings.Join(changed[i].tableRow(w.Clock.Now()), "\t"))
	}
	for _, name := range w.gone {
		w.Printf("%s\tleft the queue\n", name)
	}
	return nil
}

// currentList is the present state in queue order.
func (w *queueWatcher) currentList() List {
	entries := slices.SortedFunc(maps.Values(w.known), inOrder)
	list := List{Entries: make([]Entry, len(entries))}
	for i, e := range entries {
		list.Entries[i] = newEntry(e)
	}
	return list
}

// inOrder is the order ListQueue has: what does not wait by its number and age, then the others by
// their place.
func inOrder(a, b *queuev1.QueueEntry) int {
	if (a.GetPosition() == 0) != (b.GetPosition() == 0) {
		return cmp.Compare(min(a.GetPosition(), 1), min(b.GetPosition(), 1))
	}
	return cmp.Or(
		cmp.Compare(a.GetPosition(), b.GetPosition()),
		cmp.Compare(uint64(a.GetSequence())-1, uint64(b.GetSequence())-1), // those without a number last
		a.GetCreateTime().AsTime().Compare(b.GetCreateTime().AsTime()),
		cmp.Compare(a.GetName(), b.GetName()),
	)
}
