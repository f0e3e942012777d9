package queue_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
	"github.com/holdfast-io/holdfast/services/queue-scheduler/internal/settings"
)

// history is one random life of a queue: jobs come, run, end and vanish while two schedulers pass
// at once, sleep between any two calls, die and start again.
type history struct {
	ctx         context.Context //nolint:containedctx // a history is one run of a test
	store       *store
	random      *rand.Rand
	limits      ledger.Limits
	most        ledger.Limits // the highest there ever were
	now         time.Time
	actors      []*actor
	acting      *actor
	calm        bool // no faults
	names       int
	old         []velerov1.Backup // a list as it was some time ago
	oldRestores []velerov1.Restore
	listed      []ledger.Entry // the ledger after the last write
	started     uint64         // backups admitted in all
	overtakings uint64         // lower numbers they went ahead of
	problems    []string
	rules       *rules
	ghosts      []ghost

	bookVersion string // of the ledger read last, and what it held
	bookEntries []ledger.Entry
}

func newHistory(ctx context.Context, seed uint64) *history {
	h := &history{now: start.Add(time.Hour), ctx: ctx, store: &store{}, rules: &rules{}, random: rand.New(rand.NewPCG(seed, 11))}
	h.setLimits()
	h.actors = []*actor{h.newActor(), h.newActor()}
	return h
}

// setLimits changes them while everything continues.
func (h *history) setLimits() {
	h.limits = ledger.Limits{Backups: 1 + h.random.IntN(3), Restores: 1 + h.random.IntN(2)}
	h.most.Backups, h.most.Restores = max(h.most.Backups, h.limits.Backups), max(h.most.Restores, h.limits.Restores)
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: settings.Name}}
	if h.store.Get(h.ctx, client.ObjectKeyFromObject(cm), cm) != nil {
		_ = h.store.Create(h.ctx, cm)
	}
	cm.Data = map[string]string{
		settings.ConcurrentBackups: strconv.Itoa(h.limits.Backups), settings.ConcurrentRestores: strconv.Itoa(h.limits.Restores),
	}
	_ = h.store.Update(h.ctx, cm)
}

// cancelQueued ends a queued backup, as a cancellation does.
func (h *history) cancelQueued() {
	if o, ok := h.store.objects[h.random.IntN(len(h.store.objects))].DeepCopyObject().(*velerov1.Backup); ok && o.Status.Phase == velerov1.BackupPhaseQueued {
		o.Status.Phase, o.Status.QueuePosition = velerov1.BackupPhaseFailed, 0
		_ = h.store.Update(h.ctx, o)
	}
}

// playHistory plays the history and returns what was wrong with it.
func (h *history) playHistory() []string {
	defer func() {
		for _, a := range h.actors {
			a.killActor()
		}
	}()
	for range 10 + h.random.IntN(30) {
		h.nextEvent()
		if h.random.IntN(15) == 0 {
			h.settleAndCompare()
		}
		if len(h.problems) > 0 {
			return h.problems
		}
	}
	h.drainAll()
	return h.problems
}

func (h *history) addViolation(format string, args ...any) {
	h.problems = append(h.problems, fmt.Sprintf(format, args...))
}

func (h *history) nextEvent() {
	i := h.random.IntN(len(h.actors))
	switch n := h.random.IntN(25); {
	case n >= 23:
		h.probeLocation()
	case n < 4:
		h.submitJob()
	case n < 5 && h.random.IntN(2) == 0:
		h.submitRestore()
	case n < 9:
		h.workOnce()
	case n < 10 && h.random.IntN(2) == 0:
		if len(h.store.objects) > 0 {
			if o := h.store.objects[h.random.IntN(len(h.store.objects))]; o.GetName() != ledger.Name && o.GetName() != settings.Name {
				h.noteGhost(o)
				h.store.removeObject(o)
			}
		}
	case n < 11:
		h.actors[i].killActor()
		h.actors[i] = h.newActor()
	case n < 12 && h.random.IntN(2) == 0:
		h.setLimits()
	case n < 13:
		h.cancelQueued()
	case n < 14:
		h.now = h.now.Add(time.Duration(h.random.IntN(20)) * time.Minute)
	case n < 18: // it goes some way and sleeps
		for range 1 + h.random.IntN(25) {
			h.actors[i].advanceCall()
		}
	default:
		h.actors[i].advanceCall()
		h.actors[i].finishPass()
	}
}

func (h *history) randomNamespaces() []string {
	if h.random.IntN(10) == 0 {
		return nil
	}
	out := make([]string, 1+h.random.IntN(3))
	for i := range out {
		out[i] = fmt.Sprintf("n%d", h.random.IntN(6))
	}
	return out
}

func (h *history) submitJob() {
	h.names++
	b := &velerov1.Backup{ObjectMeta: objectMeta(fmt.Sprintf("b%d", h.names), h.names)}
	b.CreationTimestamp = metav1.NewTime(h.now)
	if class := []string{"low", "", "normal", "high"}[h.random.IntN(4)]; class != "" {
		b.Annotations = map[string]string{"holdfast.io/priority": class}
	}
	b.Spec.IncludedNamespaces = h.randomNamespaces()
	b.Spec.StorageLocation = locations[h.random.IntN(len(locations))]
	_ = h.store.Create(h.ctx, b)
}

const claimTimeout = 30 * time.Second

// ghost is a job that runs on for a while though its object is gone.
type ghost struct {
	work

	until time.Time
}

// noteGhost notes a running job whose object goes now. Time stands still for a scheduler in the middle
// of a pass: it may count from the beginning of that.
func (h *history) noteGhost(o client.Object) {
	from := h.now
	for _, a := range h.actors {
		if a.busy && a.clock.Now().Before(from) {
			from = a.clock.Now()
		}
	}
	var w work
	switch o := o.(type) {
	case *velerov1.Backup:
		w = backupWork(o)
		if o.Status.Phase != velerov1.BackupPhaseInProgress {
			return
		}
	case *velerov1.Restore:
		w = restoreWork(o)
		if o.Status.Phase != velerov1.RestorePhaseInProgress {
			return
		}
	}
	h.ghosts = append(h.ghosts, ghost{w, from.Add(claimTimeout)})
}

var locations = []string{"l0", "l1", "l2"}

// probeLocation finds a location available or not.
func (h *history) probeLocation() {
	message := ""
	if h.random.IntN(2) == 0 {
		message = "unavailable"
	}
	h.rules.setAway(locations[h.random.IntN(2)], message)
}

// isLocationAway reports whether a queued backup waits for its location now.
func (h *history) isLocationAway(b *velerov1.Backup) bool {
	message, _ := h.rules.Away(h.ctx, b)
	return message != ""
}

func (h *history) submitRestore() {
	h.names++
	r := &velerov1.Restore{ObjectMeta: objectMeta(fmt.Sprintf("r%d", h.names), h.names)}
	r.Spec.IncludedNamespaces = h.randomNamespaces()
	if h.random.IntN(3) == 0 {
		r.Annotations = map[string]string{"holdfast.io/ignore-running": "true"}
	}
	_ = h.store.Create(h.ctx, r)
}

// workOnce is what runners do, one move of one job: it begins if the ledger lists it.
func (h *history) workOnce() {
	if len(h.store.objects) == 0 {
		return
	}
	switch o := h.store.objects[h.random.IntN(len(h.store.objects))].DeepCopyObject().(type) {
	case *velerov1.Backup:
		if next := h.nextPhase(o); next != "" {
			o.Status.Phase = next
			_ = h.store.Update(h.ctx, o)
		}
	case *velerov1.Restore:
		switch {
		case o.Status.Phase == velerov1.RestorePhaseInProgress:
			o.Status.Phase = velerov1.RestorePhaseCompleted
		case o.Status.Phase.IsNew() && h.inLedger(o):
			o.Status.Phase = velerov1.RestorePhaseInProgress
		}
		_ = h.store.Update(h.ctx, o)
	}
	h.checkOverlaps("a runner")
}

// isQueued reports that a backup is in the queue.
func isQueued(b *velerov1.Backup) bool { return b.Status.Phase == velerov1.BackupPhaseQueued }

// nextPhase is the next phase a runner would give a backup; empty if none.
func (h *history) nextPhase(b *velerov1.Backup) velerov1.BackupPhase {
	switch b.Status.Phase {
	case velerov1.BackupPhaseReadyToStart:
		if h.inLedger(b) {
			return velerov1.BackupPhaseInProgress
		}
	case velerov1.BackupPhaseInProgress:
		return []velerov1.BackupPhase{
			velerov1.BackupPhaseFinalizing, velerov1.BackupPhaseWaitingForPluginOperations, velerov1.BackupPhaseCompleted, velerov1.BackupPhaseFailed,
		}[h.random.IntN(4)]
	case velerov1.BackupPhaseWaitingForPluginOperations:
		return velerov1.BackupPhaseFinalizing
	case velerov1.BackupPhaseFinalizing:
		return velerov1.BackupPhaseCompleted
	}
	return ""
}

func (h *history) ledgerEntries() []ledger.Entry {
	i := slices.IndexFunc(h.store.objects, func(o client.Object) bool { return o.GetName() == ledger.Name })
	if i < 0 {
		return nil
	}
	if v := h.store.objects[i].GetResourceVersion(); v == h.bookVersion {
		return h.bookEntries
	}
	h.bookVersion = h.store.objects[i].GetResourceVersion()
	entries, err := ledger.New(h.store, h.store, "velero").List(h.ctx)
	if err != nil {
		h.addViolation("the ledger cannot be read: %v", err)
	}
	h.bookEntries = entries
	return entries
}

func (h *history) inLedger(o client.Object) bool {
	return slices.ContainsFunc(h.ledgerEntries(), func(e ledger.Entry) bool { return e.UID == o.GetUID() })
}

// listFromPast answers from some time ago now and then.
func (h *history) listFromPast(ctx context.Context, list client.ObjectList) error {
	if err := h.store.List(ctx, list); err != nil {
		return err
	}
	older, keep := !h.calm && h.random.IntN(15) == 0, h.random.IntN(4) == 0
	switch list := list.(type) {
	case *velerov1.BackupList:
		if older && h.old != nil {
			list.Items = (&velerov1.BackupList{Items: h.old}).DeepCopy().Items
		} else if keep {
			h.old = list.DeepCopy().Items
		}
	case *velerov1.RestoreList:
		if older && h.oldRestores != nil {
			list.Items = (&velerov1.RestoreList{Items: h.oldRestores}).DeepCopy().Items
		} else if keep {
			h.oldRestores = list.DeepCopy().Items
		}
	}
	return nil
}
