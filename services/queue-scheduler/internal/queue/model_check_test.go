package queue_test

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
	"github.com/holdfast-io/holdfast/pkg/job/validate"
)

// jobScope is what a job works on, worked out apart from the scheduler.
func jobScope(included []string) []string {
	if len(included) == 0 {
		return []string{ledger.All}
	}
	return slices.Compact(slices.Sorted(slices.Values(included)))
}

func scopesMeet(a, b []string) bool {
	return len(ledger.Overlap(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))) > 0
}

func sequenceOf(b *velerov1.Backup) int {
	n, _ := strconv.Atoi(b.Annotations["holdfast.io/queue-sequence"])
	return n
}

// queueOf returns the queued backups in order.
func queueOf(backups []velerov1.Backup) []*velerov1.Backup {
	var out []*velerov1.Backup
	for i := range backups {
		if isQueued(&backups[i]) {
			out = append(out, &backups[i])
		}
	}
	slices.SortFunc(out, func(a, b *velerov1.Backup) int { return cmp.Compare(sequenceOf(a), sequenceOf(b)) })
	return out
}

// arrangedQueue is the order of the queue by its definition: the class of a backup is the highest of
// those behind it that wait for it, directly or through others.
func arrangedQueue(queued []*velerov1.Backup, at time.Time) []*velerov1.Backup {
	scopes, own := make([][]string, len(queued)), make([]int, len(queued))
	for i, b := range queued {
		scopes[i] = jobScope(b.Spec.IncludedNamespaces)
		own[i] = map[string]int{"low": 0, "": 1, "normal": 1, "high": 2}[b.Annotations["holdfast.io/priority"]]
		own[i] = min(2, own[i]+int(at.Sub(b.CreationTimestamp.Time)/ageing))
	}
	class := map[*velerov1.Backup]int{}
	for i, b := range queued {
		reached := map[int]bool{i: true}
		for j := i; j < len(queued); j++ {
			for k := range reached {
				if k < j && scopesMeet(scopes[k], scopes[j]) {
					reached[j] = true
					break
				}
			}
			if reached[j] {
				class[b] = max(class[b], own[j])
			}
		}
	}
	out := slices.Clone(queued)
	slices.SortStableFunc(out, func(a, b *velerov1.Backup) int { return cmp.Compare(class[b], class[a]) })
	return out
}

// allObjects returns all objects, as shallow copies: it is called after every write.
func (h *history) allObjects() (backups []velerov1.Backup, restores []velerov1.Restore) {
	for _, o := range h.store.objects {
		switch o := o.(type) {
		case *velerov1.Backup:
			backups = append(backups, *o)
		case *velerov1.Restore:
			restores = append(restores, *o)
		}
	}
	return backups, restores
}

type work struct {
	name       string
	namespaces []string
	backup     bool
	ignores    bool // a restore that may start beside backups
}

func backupWork(b *velerov1.Backup) work {
	return work{name: b.Name, namespaces: jobScope(b.Spec.IncludedNamespaces), backup: true}
}

func restoreWork(r *velerov1.Restore) work {
	return work{name: r.Name, namespaces: jobScope(r.Spec.IncludedNamespaces), ignores: r.Annotations["holdfast.io/ignore-running"] == "true"}
}

// holds up o: the two overlap, and o does not ignore it.
func (w work) holdsUp(o work) bool {
	return scopesMeet(w.namespaces, o.namespaces) && !(w.backup && o.ignores)
}

// runningWork returns the jobs a runner has or may take, by the phases alone.
func runningWork(backups []velerov1.Backup, restores []velerov1.Restore) (b, r []work) {
	for i := range backups {
		if p := backups[i].Status.Phase; p == velerov1.BackupPhaseReadyToStart || p == velerov1.BackupPhaseInProgress {
			b = append(b, backupWork(&backups[i]))
		}
	}
	for i := range restores {
		if restores[i].Status.Phase == velerov1.RestorePhaseInProgress {
			r = append(r, restoreWork(&restores[i]))
		}
	}
	return b, r
}

// checkOverlaps checks after every write that nothing runs beside what it overlaps with, and rule (a).
func (h *history) checkOverlaps(who string) {
	b, r := runningWork(h.allObjects())
	if len(b) > h.most.Backups || len(r) > h.most.Restores {
		h.addViolation("%s: %d backups and %d restores run, limits were never above %+v", who, len(b), len(r), h.most)
	}
	running := slices.Concat(b, r)
	for _, g := range h.ghosts {
		if h.now.Before(g.until) {
			running = append(running, g.work)
		}
	}
	for i, j := range running {
		for _, o := range running[:i] {
			if j.holdsUp(o) && o.holdsUp(j) {
				h.addViolation("%s: %s runs beside %s", who, j.name, o.name)
			}
		}
	}
}

// checkWrite checks what a scheduler did.
func (h *history) checkWrite(a *actor) {
	h.checkOverlaps("a scheduler")
	before := h.listed
	h.listed = h.ledgerEntries()
	for _, e := range h.listed {
		switch {
		case containsEntry(before, e.UID):
		case e.Kind == ledger.KindBackup:
			h.started++
			h.checkAdmittedAlone(e, before)
			h.inPlace(a, e, before)
			h.inOrder(a, e, before)
		default:
			h.restoreInOrder(a, e, before)
		}
	}
}

// checkAdmittedAlone checks that a backup is admitted beside nothing it overlaps with, be it a restore that
// ignores backups.
func (h *history) checkAdmittedAlone(e ledger.Entry, before []ledger.Entry) {
	for _, o := range before {
		if scopesMeet(o.Namespaces, e.Namespaces) {
			h.addViolation("%s is admitted beside %s", e.Name, o.Name)
		}
	}
}

// restoreInOrder checks that no restore is admitted past an older one it overlaps with, if its
// scheduler knew that one.
func (h *history) restoreInOrder(a *actor, e ledger.Entry, before []ledger.Entry) {
	_, restores := h.allObjects()
	i := slices.IndexFunc(restores, func(r velerov1.Restore) bool { return r.UID == e.UID })
	if i < 0 || !restores[i].Status.Phase.IsNew() {
		return // over or gone: entered once more by one who slept, and taken out again
	}
	for j := range restores {
		r := &restores[j]
		waits := a.restores[r.UID] && r.Status.Phase.IsNew() && !containsEntry(before, r.UID)
		if waits && r.CreationTimestamp.Before(&restores[i].CreationTimestamp) && scopesMeet(jobScope(r.Spec.IncludedNamespaces), e.Namespaces) {
			h.addViolation("%s started past the older restore %s", e.Name, r.Name)
		}
	}
}

// inPlace checks rule (a) by the limits its scheduler read in this pass.
func (h *history) inPlace(a *actor, e ledger.Entry, before []ledger.Entry) {
	taken := 0
	for _, o := range before {
		if o.Kind == ledger.KindBackup {
			taken++
		}
	}
	if taken >= a.limits.Backups {
		h.addViolation("%s started beside %d backups, the limit is %d", e.Name, taken, a.limits.Backups)
	}
}

// inOrder checks rules (b) and (c) for an admission, by the queue its scheduler knew and the ledger
// it swapped: no backup starts past a queued one it overlaps with, or while one that could run is
// ahead.
func (h *history) inOrder(a *actor, e ledger.Entry, before []ledger.Entry) {
	backups, restores := h.allObjects()
	i := slices.IndexFunc(backups, func(b velerov1.Backup) bool { return b.UID == e.UID })
	if i < 0 || !isQueued(&backups[i]) {
		return // over or gone: entered once more by one who slept, and taken out again
	}
	namespaces := jobScope(backups[i].Spec.IncludedNamespaces)
	var held [][]string // what those further ahead of q hold
	for j := range restores {
		r := &restores[j]
		if a.restores[r.UID] && r.Status.Phase.IsNew() && !containsEntry(before, r.UID) {
			if scopesMeet(validate.Targets(&r.Spec), namespaces) {
				h.addViolation("%s started past waiting restore %s", e.Name, r.Name)
			}
		}
	}
	held = append(held, a.targets...)
	for _, o := range before {
		held = append(held, o.Namespaces)
	}
	for _, q := range arrangedQueue(a.availableBackups(queueOf(a.known), before, e.UID), a.clock.Now()) {
		if q.UID == e.UID {
			h.noteOvertaken(a, &backups[i], before)
			break
		}
		ns := jobScope(q.Spec.IncludedNamespaces)
		waits := slices.ContainsFunc(backups, func(b velerov1.Backup) bool {
			return b.UID == q.UID && isQueued(&b)
		}) && !containsEntry(before, q.UID)
		switch {
		case waits && scopesMeet(ns, namespaces):
			h.addViolation("%s started past %s, which waits for the same", e.Name, q.Name)
		case waits && !slices.ContainsFunc(held, func(o []string) bool { return scopesMeet(o, ns) }):
			h.addViolation("%s started while %s ahead of it could run", e.Name, q.Name)
		}
		held = append(held, ns)
	}
}

// noteOvertaken notes who went ahead of a lower number, and checks that it overlaps with none of those.
func (h *history) noteOvertaken(a *actor, b *velerov1.Backup, before []ledger.Entry) {
	for _, q := range a.availableBackups(queueOf(a.known), before, b.UID) {
		if sequenceOf(q) >= sequenceOf(b) || containsEntry(before, q.UID) || !isQueued(q) {
			continue
		}
		h.overtakings++
		i := slices.IndexFunc(h.store.objects, func(o client.Object) bool { return o.GetUID() == q.UID })
		now, there := h.store.objects[max(i, 0)].(*velerov1.Backup)
		if there && i >= 0 && isQueued(now) && scopesMeet(jobScope(q.Spec.IncludedNamespaces), jobScope(b.Spec.IncludedNamespaces)) {
			h.addViolation("%s overtook %s, which it overlaps with", b.Name, q.Name)
		}
	}
}

// availableBackups are those of a queue whose location is available to its scheduler: the others are
// inadmissible and hold up no backup.
func (a *actor) availableBackups(queued []*velerov1.Backup, admitted []ledger.Entry, started types.UID) []*velerov1.Backup {
	return slices.DeleteFunc(queued, func(b *velerov1.Backup) bool {
		return a.away[b.Spec.StorageLocation] && b.UID != started && !containsEntry(admitted, b.UID)
	})
}

func containsEntry(entries []ledger.Entry, uid types.UID) bool {
	return slices.ContainsFunc(entries, func(e ledger.Entry) bool { return e.UID == uid })
}

// settleAndCompare runs the schedulers until nothing changes and compares the result with plain rules.
func (h *history) settleAndCompare() {
	h.calm = true
	defer func() { h.calm = false }()
	for _, a := range h.actors {
		a.finishPass()
	}
	rested := false // nothing happened for once
	for range 20 {
		before := h.store.version
		h.now = h.now.Add(claimTimeout) // what is gone has stopped
		h.actors[0].advanceCall()
		h.actors[0].finishPass()
		still := h.store.version == before && len(h.lostEntries()) == 0
		if still && rested {
			h.checkSettled()
			return
		}
		rested = still
	}
	h.addViolation("the scheduler never comes to rest")
}

// lostEntries are the entries of jobs that are gone.
func (h *history) lostEntries() []ledger.Entry {
	return slices.DeleteFunc(slices.Clone(h.ledgerEntries()), func(e ledger.Entry) bool {
		return slices.ContainsFunc(h.store.objects, func(o client.Object) bool { return o.GetUID() == e.UID })
	})
}

// checkSettled is the reference: who must be running when nothing moves.
func (h *history) checkSettled() {
	backups, restores := h.allObjects()
	running, begun := runningWork(backups, restores)
	entries := h.ledgerEntries()
	slices.SortFunc(restores, func(a, b velerov1.Restore) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	restoring := len(begun)
	held := slices.Concat(running, begun)
	for i := range restores {
		if r := &restores[i]; r.Status.Phase.IsNew() && containsEntry(entries, r.UID) {
			held = append(held, restoreWork(r))
			restoring++
		}
	}
	if len(entries) != len(held) {
		h.addViolation("%d jobs run, %d are in the ledger", len(held), len(entries))
	}
	free := func(w work) bool { return !slices.ContainsFunc(held, func(o work) bool { return o.holdsUp(w) }) }
	for i := range restores {
		if r := &restores[i]; r.Status.Phase.IsNew() && !containsEntry(entries, r.UID) {
			w := restoreWork(r)
			if restoring < h.limits.Restores && free(w) {
				h.addViolation("restore %s could run and waits", r.Name)
			}
			held = append(held, w) // those behind it that overlap wait for it
		}
	}
	queued := queueOf(backups)
	there := slices.DeleteFunc(slices.Clone(queued), h.isLocationAway)
	aside := slices.DeleteFunc(queued, func(b *velerov1.Backup) bool { return !h.isLocationAway(b) })
	for i, q := range slices.Concat(arrangedQueue(there, h.now), arrangedQueue(aside, h.now)) {
		w := backupWork(q)
		if i < len(there) && len(running) < h.limits.Backups && free(w) {
			h.addViolation("%s could run and waits", q.Name)
		}
		if q.Status.QueuePosition != i+1 {
			h.addViolation("%s is at %d and says %d", q.Name, i+1, q.Status.QueuePosition)
		}
		held = append(held, w)
	}
	for i := range backups {
		if backups[i].Status.Phase.IsNew() {
			h.addViolation("%s was never queued", backups[i].Name)
		}
	}
}

// drainAll submits no more and lets everything end: no job may be left over.
func (h *history) drainAll() {
	for _, l := range locations {
		h.rules.setAway(l, "")
	}
	for range h.names + 2 {
		h.settleAndCompare()
		if len(h.problems) > 0 {
			return
		}
		backups, restores := h.allObjects()
		left := 0
		for i := range backups {
			b := &backups[i]
			if b.Status.Phase == velerov1.BackupPhaseReadyToStart || b.Status.Phase == velerov1.BackupPhaseInProgress {
				b.Status.Phase = velerov1.BackupPhaseCompleted
				_ = h.store.Update(h.ctx, b)
			}
			if isQueued(b) {
				left++
			}
		}
		for i := range restores {
			if r := &restores[i]; !r.Status.Phase.Terminal() {
				left++
				if h.inLedger(r) {
					r.Status.Phase = velerov1.RestorePhaseCompleted
					_ = h.store.Update(h.ctx, r)
				}
			}
		}
		if left == 0 {
			return
		}
	}
	h.addViolation("jobs starve though others end")
}
