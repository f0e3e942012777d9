package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc/metadata"

	"github.com/holdfast-io/holdfast/pkg/archive/itemoperation"
	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
)

const (
	// maxRequests bounds the attempts to record requests beside other writers.
	maxRequests = 20
	// maxEvents bounds a record of requests.
	maxEvents = 4000
)

// ReasonNotCollected is the reason of the error while a job may still begin operations.
const ReasonNotCollected = "OPERATIONS_NOT_COLLECTED"

// ReasonNotRecorded is the reason of the error where operations are in the file of another server
// alone: nothing can be recorded about them.
const ReasonNotRecorded = "OPERATIONS_NOT_RECORDED"

// Target selects operations of a job: those of an ID, or all where it is empty.
type Target struct {
	ID string
	// Action is needed where several actions gave the same ID.
	Action string
}

func (t Target) matchesOperation(id, action string) bool {
	return t.ID == "" || t.ID == id && (t.Action == "" || t.Action == action)
}

// checkTarget refuses a target that means no operation, or operations of several actions.
func (t Target) checkTarget(owner Owner, actions []string) error {
	slices.Sort(actions)
	actions = slices.Compact(actions)
	switch {
	case t.ID == "":
		return nil
	case len(actions) == 0 && t.Action != "":
		return fmt.Errorf("operation %q of action %s of %s: %w", t.ID, t.Action, owner, errgrpc.ErrNotFound)
	case len(actions) == 0:
		return fmt.Errorf("operation %q of %s: %w", t.ID, owner, errgrpc.ErrNotFound)
	case len(actions) > 1:
		return errgrpc.Field("operation.action", "operation %q is one of several actions: %s", t.ID, strings.Join(actions, ", "))
	}
	return nil
}

// Cancelled is what a request to cancel meant.
type Cancelled struct {
	// Operations are those that were meant; of all, those that had not ended.
	Operations []itemoperation.Operation
	// Requested is for how many of them the request was recorded now.
	Requested int
}

// Cancel records, once for each operation that is meant and has not ended, that it has to end for
// that reason, and has them polled. An error wraps errgrpc.ErrPrecondition, with the reason
// ReasonNotCollected, while the job may still begin operations, and ReasonNotRecorded where one that
// has not ended is known by the file of another server alone.
func (s *Source) Cancel(ctx context.Context, owner Owner, target Target, reason string) (Cancelled, error) {
	job, err := s.readJob(ctx, owner)
	if err != nil {
		return Cancelled{}, err
	}
	f := &foundOperations{job: job, kind: owner.Kind}
	requested := 0
	if mayHaveBegun(job) {
		if requested, err = s.requestCancel(ctx, f, owner, target, reason); err != nil {
			return Cancelled{}, err
		}
	}
	if _, ended := phaseOf(job); !ended && f.ops == nil && f.file == nil {
		return Cancelled{}, errgrpc.WithReason(
			fmt.Errorf("the operations of %s are not known before all its items were looked at, cancel the %[2]s: %[3]w", owner, strings.ToLower(owner.Kind), errgrpc.ErrPrecondition),
			ReasonNotCollected, nil)
	}
	if requested > 0 && s.Memory != nil {
		own := metadata.NewIncomingContext(ctx, nil) // the caller's token is none for calls of this service
		s.Memory.Wake(own, owner.Kind, owner.Name, job.GetUID())
	}
	meant, err := s.cancelledBy(f, owner, target, requested)
	running := slices.ContainsFunc(meant.Operations, func(o itemoperation.Operation) bool { return !o.Done() })
	if err == nil && f.ops == nil && running {
		return Cancelled{}, errgrpc.WithReason(
			fmt.Errorf("the operations of %s were begun by another server, which alone can cancel them: %w", owner, errgrpc.ErrPrecondition), ReasonNotRecorded, nil)
	}
	return meant, err
}

// requestCancel records what is asked in the records of a job that has some.
func (s *Source) requestCancel(ctx context.Context, f *foundOperations, owner Owner, target Target, reason string) (n int, err error) {
	store, err := s.Store(ctx, f.job)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	log, err := readRecords(ctx, store, f.kind, f.job)
	if err != nil {
		return 0, err
	}
	if log == nil {
		f.file, err = readJobFile(ctx, store, f.kind, f.job.GetName())
		return 0, err
	}
	n, err = s.appendRequests(ctx, log, owner, target, reason)
	f.ops, f.states = log.Operations(), log.States()
	return n, err
}

// appendRequests records requests. Of several writers one is first, and the others read its records.
func (s *Source) appendRequests(ctx context.Context, log *operation.Log, owner Owner, target Target, reason string) (n int, err error) {
	var actions []string
	for i := range log.Operations() {
		if op := &log.Operations()[i]; target.matchesOperation(op.ID, op.Action) {
			actions = append(actions, op.Action)
		}
	}
	if err := target.checkTarget(owner, actions); err != nil {
		return 0, err
	}
	for conflicts := 0; conflicts < maxRequests; {
		events := s.cancelRequests(log, target, reason)
		if len(events) == 0 {
			return n, nil
		}
		events = events[:operation.CountFitting(events)]
		switch err = log.Append(ctx, events...); {
		case err == nil:
			n += len(events)
		case !errors.Is(err, operation.ErrConflict):
			return n, err
		default:
			conflicts++
		}
	}
	if err == nil {
		return n, nil
	}
	return n, fmt.Errorf("record the request for %s: %w: %w", owner, errgrpc.ErrConflict, err)
}

func (s *Source) cancelRequests(log *operation.Log, target Target, reason string) (events []operation.Event) {
	states := log.States()
	for i := range log.Operations() {
		op, state := &log.Operations()[i], &states[i]
		if len(events) < maxEvents && target.matchesOperation(op.ID, op.Action) && !state.Phase.Ended() && state.Request == nil && state.Cancel == nil {
			events = append(events, operation.Event{Operation: i, Time: s.Clock.Now().UTC().Round(0), Request: &operation.Request{Reason: reason}})
		}
	}
	return events
}

// cancelledBy lists the operations that a request means.
func (s *Source) cancelledBy(f *foundOperations, owner Owner, target Target, requested int) (Cancelled, error) {
	c := Cancelled{Requested: requested}
	var actions []string
	for _, o := range s.listOperations(f) {
		if target.matchesOperation(o.Spec.ID, o.Spec.Action()) && (target.ID != "" || !o.Done()) {
			c.Operations = append(c.Operations, o)
			actions = append(actions, o.Spec.Action())
		}
	}
	return c, target.checkTarget(owner, actions)
}
