package pluginhost

import "time"

// Limits bound what a plugin may cost. Zero fields mean the defaults stated.
type Limits struct {
	// Start is how long a process may take until its handshake: 1 minute, as in Velero.
	Start time.Duration
	// Stop is how long a process may take to end before it is killed: 2 seconds, as in Velero.
	Stop time.Duration
	// Query bounds the calls that only ask: ListPlugins, AppliesTo, Init, AreAdditionalItemsReady,
	// Progress, Cancel and the ones about the id of a volume: 1 minute.
	Query time.Duration
	// Execute bounds Execute and GetRelatedItems of actions on objects: 15 minutes, because actions
	// of storage vendors wait in it for a snapshot, by default up to 10.
	Execute time.Duration
	// Storage bounds one call of an ObjectStore, and of a VolumeSnapshotter that creates or
	// deletes: 10 minutes. In a transfer it bounds the time from one chunk to the next.
	Storage time.Duration
	// Answer is the largest answer in bytes: 8 MiB, over twice the largest object that an API
	// server accepts.
	Answer int
	// Deaths is how many times in a row a process may die or hang before none is started for a
	// while, and how many calls in a row one that jobs share may leave unanswered before another is
	// started: 5.
	Deaths int
	// Backoff is for how long none is started: 1 minute.
	Backoff time.Duration
	// Idle is how long a process that jobs share runs on without a call and without an operation in
	// it: 5 minutes.
	Idle time.Duration
	// LogRate and LogBurst bound the lines a process may log: 1,000 a second after the first
	// 10,000, where every 4 KiB of a long line count as one more. What is over is counted and
	// reported.
	LogRate  float64
	LogBurst int
}

// orDefault returns v, or the default where v is zero.
func orDefault[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

func (l Limits) withDefaults() Limits {
	return Limits{
		Start:    orDefault(l.Start, time.Minute),
		Stop:     orDefault(l.Stop, 2*time.Second),
		Query:    orDefault(l.Query, time.Minute),
		Execute:  orDefault(l.Execute, 15*time.Minute),
		Storage:  orDefault(l.Storage, 10*time.Minute),
		Answer:   orDefault(l.Answer, 8<<20),
		Deaths:   orDefault(l.Deaths, 5),
		Backoff:  orDefault(l.Backoff, time.Minute),
		Idle:     orDefault(l.Idle, 5*time.Minute),
		LogRate:  orDefault(l.LogRate, 1000),
		LogBurst: orDefault(l.LogBurst, 10000),
	}
}
