package flight

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/dispatch"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
)

// CompleteLater notes that an object of this restore was created with the references now and still lacks
// those of later, which are patched in once all these owners have an outcome.
func (l *Linker) CompleteLater(ctx context.Context, v int32, result *apply.Result, now []any, later []Reference) {
	child := &Child{Node: v, UID: result.UID, Version: result.Version, Base: now, Namespace: l.ownerNamespace(v)}
	if l.book.Await(child, later) {
		l.patchOwners(ctx, child)
	}
}

// Resolve gives the objects that wait for a node as their owner the UID that it has now, "" when it
// is not there.
func (l *Linker) Resolve(ctx context.Context, node int32, uid types.UID) {
	if !l.Plan.Owns(node) {
		return
	}
	due := l.book.Resolve(node, l.ownerOf(node, uid))
	if len(due) == 1 {
		l.patchOwners(ctx, due[0])
	} else if len(due) > 1 {
		_ = l.patchChildren(ctx, due) // fails only at a stop; the records of the objects left out say that owners are missing
	}
}

// patchChildren completes the references of objects that came before their owners. The objects of one owner
// are patched at a time: each owner's patches alone fill the limit of requests.
func (l *Linker) patchChildren(ctx context.Context, due []*Child) error {
	l.patching.Lock()
	defer l.patching.Unlock()
	return dispatch.Run(ctx, dispatch.Independent(len(due)), dispatch.Work{
		Do:      func(ctx context.Context, i int32) *dispatch.Wait { l.patchOwners(ctx, due[i]); return nil },
		Weight:  func(int32) int64 { return 0 },
		Passive: func(int32) bool { return false },
		Limit:   l.Limit,
		Stop:    l.Stop,
	})
}

// patchOwners completes the references of one object.
func (l *Linker) patchOwners(ctx context.Context, child *Child) {
	missing, lost := l.book.Missing(child)
	e := l.Recorder.Begin(child.Node)
	for _, reference := range lost {
		warnDropped(e, l.describeLostOwner(reference))
	}
	if len(missing) > 0 {
		failpoint.Hit("restore-runner/before-owner-patch")
		if !l.addOwners(ctx, e, child, missing) {
			return
		}
		failpoint.Hit("restore-runner/after-owner-patch")
	}
	e.Linked()
	e.Commit()
	failpoint.Hit("restore-runner/owner-patch-noted")
}

// addOwners adds owner references to an object of this restore. False when ctx ended before it was
// done.
func (l *Linker) addOwners(ctx context.Context, e *outcome.Entry, c *Child, missing []any) bool {
	adopted, err := l.Existing.Client.Adopt(ctx, apply.Orphan{Target: l.Names.Target(c.Node), UID: c.UID, Version: c.Version, Base: c.Base, Missing: missing})
	for _, note := range adopted.Notes {
		e.Info(note)
	}
	if adopted.Unblocked {
		e.Warn(apply.Unblocked)
	}
	if err != nil {
		e.Error(fmt.Sprintf("metadata.ownerReferences could not be added: %v", err))
		return ctx.Err() == nil
	}
	return true
}

// CatchUp adds those owner references to an object that it was not created with: an earlier holder
// of the restore, or an earlier attempt, made it when its owners were not known yet. False when ctx
// ended before that was done.
func (l *Linker) CatchUp(ctx context.Context, e *outcome.Entry, v int32, result *apply.Result, now []any) bool {
	if !result.Fresh || result.Version != "" || len(now) == 0 {
		return true
	}
	failpoint.Hit("restore-runner/before-missed-reference")
	return l.addOwners(ctx, e, &Child{Node: v, UID: result.UID}, now)
}
