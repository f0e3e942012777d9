package operations

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

func (t Target) is(id, action string) bool {
	return t.ID == "" || t.ID == id && (t.Action == "" || t.Action == action)
}

// check refuses a target that means no operation, or operations of several actions.
func (t Target) check(owner Owner, actions []string) error {
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
	job, err := s.job(ctx, owner)
	if err != nil {
		return Cancelled{}, err
	}
	f := &found{job: job, kind: owner.Kind}
	requested := 0
	if begun(job) {
		if requested, err = s.request(ctx, f, owner, target, reason); err != nil {
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
	meant, err := s.meant(f, owner, target, requested)
	running := slices.ContainsFunc(meant.Operations, func(o itemoperation.Operation) bool { return !o.Done() })
	if err == nil && f.ops == nil && running {
		return Cancelled{}, errgrpc.WithReason(
			fmt.Errorf("the operations of %s were begun by another server, which alone can cancel them: %w", owner, errgrpc.ErrPrecondition), ReasonNotRecorded, nil)
	}
	return meant, err
}

// request records what is asked in the records of a job that has some.
func (s *Source) request(ctx context.Context, f *found, owner Owner, target Target, reason string) (n int, err error) {
	store, err := s.Store(ctx, f.job)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	log, err := recorded(ctx, store, f.kind, f.job)
	if err != nil {
		return 0, err
	}
	if log == nil {
		f.file, err = filed(ctx, store, f.kind, f.job.GetName())
		return 0, err
	}
	n, err = s.append(ctx, log, owner, target, reason)
	f.ops, f.states = log.Operations(), log.States()
	return n, err
}

// append records requests. Of several writers one is first, and the others read its records.
func (s *Source) append(ctx context.Context, log *operation.Log, owner Owner, target Target, reason string) (n int, err error) {
	var actions []string
	for i := range log.Operations() {
		if op := &log.Operations()[i]; target.is(op.ID, op.Action) {
			actions = append(actions, op.Action)
		}
	}
	if err := target.check(owner, actions); err != nil {
		return 0, err
	}
	for conflicts := 0; conflicts < maxRequests; {
		events := s.requests(log, target, reason)
		if len(events) == 0 {
			return n, nil
		}
		events = events[:operation.Fit(events)]
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

func (s *Source) requests(log *operation.Log, target Target, reason string) (events []operation.Event) {
	states := log.States()
	for i := range log.Operations() {
		op, state := &log.Operations()[i], &states[i]
		if len(events) < maxEvents && target.is(op.ID, op.Action) && !state.Phase.Ended() && state.Request == nil && state.Cancel == nil {
			events = append(events, operation.Event{Operation: i, Time: s.Clock.Now().UTC().Round(0), Request: &operation.Request{Reason: reason}})
		}
	}
	return events
}

// meant lists the operations that a request means.
func (s *Source) meant(f *found, owner Owner, target Target, requested int) (Cancelled, error) {
	c := Cancelled{Requested: requested}
	var actions []string
	for _, o := range s.list(f) {
		if target.is(o.Spec.ID, o.Spec.Action()) && (target.ID != "" || !o.Done()) {
			c.Operations = append(c.Operations, o)
			actions = append(actions, o.Spec.Action())
		}
	}
	return c, target.check(owner, actions)
}
