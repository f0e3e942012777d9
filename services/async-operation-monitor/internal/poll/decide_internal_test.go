package poll

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/job/operation"
)

// What a poll decides about one operation, created at minute 0 with a timeout of 60 minutes and a grace
// period of 4 minutes.
func TestDecisionsAboutAnOperation(t *testing.T) {
	created := time.Unix(1700000000, 0)
	at := func(minute float64) time.Time { return created.Add(time.Duration(minute * float64(time.Minute))) }
	ended, broken := &operation.End{}, &operation.End{Error: "broken"}
	// cancelled is an operation with that many intents to cancel it, the last of them at minute 10.
	cancelled := func(intents int, answer *operation.Answer) operation.State {
		return operation.State{Cancel: &operation.Cancel{Reason: "stopped"}, CancelTime: at(10), Cancels: intents, Answer: answer}
	}
	mine := func(m opState) opState { // the intent is of this process, which called the action at minute 11
		m.intent, m.sent = at(10), at(11)
		return m
	}
	other := func(m opState) opState { // another process wrote the intent, which this one saw at minute 12
		m.seenIntent, m.seen = at(10), at(12)
		return m
	}
	cancels := func(reason string) operation.Event {
		return operation.Event{Cancel: &operation.Cancel{Reason: reason}}
	}
	fails := func(text string) operation.Event { return operation.Event{End: &operation.End{Error: text}} }
	accepted := &operation.Answer{Accepted: true}
	for name, tt := range map[string]struct {
		memo   opState
		state  operation.State
		cancel string
		minute float64
		want   []operation.Event
	}{
		"it runs":                               {minute: 59},
		"it has completed":                      {memo: opState{ended: ended}, minute: 1, want: []operation.Event{{End: ended}}},
		"it has failed, and the job stops":      {memo: opState{ended: broken}, cancel: "stop", minute: 1, want: []operation.Event{{End: broken}}},
		"the job stops":                         {cancel: "stop", minute: 1, want: []operation.Event{cancels("stop")}},
		"it is requested to end":                {state: operation.State{Request: &operation.Request{Reason: "by ann"}}, minute: 1, want: []operation.Event{cancels("by ann")}},
		"its time is over, and it runs still":   {memo: opState{asked: at(60)}, minute: 60, want: []operation.Event{cancels("timed out after 1h0m0s")}},
		"its time is over, it was not polled":   {memo: opState{asked: at(59)}, minute: 60.4},
		"its time is over, no poll is answered": {memo: opState{asked: at(59)}, minute: 60.5, want: []operation.Event{cancels("timed out after 1h0m0s")}},
		"the call to cancel is under way":       {memo: mine(opState{}), state: cancelled(1, nil), minute: 14.9},
		"the call to cancel has returned":       {memo: mine(opState{reply: accepted}), state: cancelled(1, nil), minute: 12, want: []operation.Event{{Answer: accepted}}},
		"it has ended after the call": {memo: mine(opState{ended: ended}), state: cancelled(1, accepted), minute: 12,
			want: []operation.Event{fails("stopped, the cancel was acknowledged: it completed")}},
		"it has ended with the call": {memo: mine(opState{ended: broken, reply: accepted}), state: cancelled(1, nil), minute: 12,
			want: []operation.Event{{Answer: accepted}, fails("stopped, the cancel was acknowledged: broken")}},
		"its grace period is over": {memo: mine(opState{problem: "no answer"}), state: cancelled(1, &operation.Answer{}), minute: 15,
			want: []operation.Event{fails("stopped, the cancel was refused; it may still be running; the last poll failed: no answer")}},
		"another process is to call":               {memo: other(opState{}), state: cancelled(1, nil), minute: 13.9},
		"another process has not called":           {memo: other(opState{}), state: cancelled(1, nil), minute: 14, want: []operation.Event{cancels("stopped")}},
		"another process has the answer":           {memo: other(opState{}), state: cancelled(1, accepted), minute: 14},
		"two processes have not called":            {memo: other(opState{}), state: cancelled(2, nil), minute: 14},
		"two processes have not called in time":    {memo: other(opState{}), state: cancelled(2, nil), minute: 16, want: []operation.Event{fails("stopped, the cancel was not acknowledged; it may still be running")}},
		"an intent that this process has not seen": {state: cancelled(2, nil), minute: 100},
	} {
		t.Run(name, func(t *testing.T) {
			in := &decisionInput{memo: &tt.memo, state: &tt.state, created: created, opened: created, cancel: tt.cancel, timeout: time.Hour, grace: 4 * time.Minute}
			require.Equal(t, tt.want, decideEvents(in, at(tt.minute)))
		})
	}
}

// A process that begins to follow a job whose operation is over time polls it first.
func TestAnOperationOverTimeIsPolledFirst(t *testing.T) {
	created := time.Unix(1700000000, 0)
	opened := created.Add(10 * time.Hour)
	in := &decisionInput{memo: &opState{}, state: &operation.State{}, created: created, opened: opened, timeout: time.Hour, grace: time.Minute}
	require.Empty(t, decideEvents(in, opened.Add(callLimit-time.Second)))
	require.NotEmpty(t, decideEvents(in, opened.Add(callLimit)))
}
