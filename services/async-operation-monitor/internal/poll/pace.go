package poll

import (
	"time"
)

// minPollPause is the shortest pause between two polls of a job.
const minPollPause = 200 * time.Millisecond

// nextPoll is after how long the job has to be polled again: when the first of its operations is due,
// or has to be cancelled, or has had its grace period. It is never longer than the frequency, as
// another process may have recorded something.
func (j *Job) nextPoll(now time.Time, turn Input) time.Duration {
	wait := j.poller.Frequency
	if j.crowded {
		wait = minPollPause
	}
	states, ops := j.log.States(), j.log.Operations()
	for i := range j.memos {
		m, s, op := &j.memos[i], &states[i], &ops[i]
		if s.Phase.Ended() {
			continue
		}
		if s.Cancel == nil {
			wait = min(wait, op.Created.Add(j.operationTimeout(op, turn)).Sub(now))
		} else {
			wait = min(wait, j.poller.Grace-m.graceUsed(s, now), j.poller.cancelPollInterval(op))
		}
		if !m.calling {
			wait = min(wait, m.due.Sub(now))
		}
	}
	return max(wait, minPollPause)
}

// stalledOperations returns the operations that are found to make no progress now.
func (j *Job) stalledOperations(now time.Time) (list []Stall) {
	if j.poller.Stall <= 0 {
		return nil
	}
	states := j.log.States()
	for i := range j.memos {
		m := &j.memos[i]
		if states[i].Phase.Ended() || m.stalled || now.Sub(m.changed) < j.poller.Stall {
			continue
		}
		m.stalled = true
		j.poller.Metrics.Stalled()
		list = append(list, Stall{Operation: j.log.Operations()[i], For: now.Sub(m.changed)})
	}
	return list
}
