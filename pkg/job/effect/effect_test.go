package effect

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/job/journal"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
)

var (
	errCrash   = errors.New("plugin process died")
	errNotSent = errors.New("plugin process did not start")
	errRefused = errors.New("malformed answer")
)

func newTestCaller() *Caller {
	return NewCaller(Config{
		IsProcessCrash: func(err error) bool { return errors.Is(err, errCrash) },
		IsNotSent:      func(err error) bool { return errors.Is(err, errNotSent) },
		Operations:     &operation.Counter{},
	})
}

// Promise P3: a call that may have begun an operation is announced before, and is repeated only with
// its key.
func TestACallIsMadeOnce(t *testing.T) {
	type answer struct {
		operation string
		err       error
		stop      bool // the context ends with the answer
	}
	for name, tt := range map[string]struct {
		announced, repeatable, full bool
		stopped                     bool // the context ends with the announcement
		answers                     []answer
		want                        string // of announced, withdrawn, made, ended
		err                         error
		operations                  int
	}{
		"without an operation":                     {answers: []answer{{}}, want: "announced made ended"},
		"with an operation":                        {answers: []answer{{operation: "op"}}, want: "announced made ended", operations: 1},
		"a failure with an operation":              {answers: []answer{{"op", errRefused, false}}, want: "announced made ended", err: errRefused, operations: 1},
		"announced before":                         {announced: true, repeatable: true, answers: []answer{{operation: "op"}}, want: "made ended", operations: 1},
		"no more operations":                       {full: true, err: journal.ErrDocumentTooLarge, operations: operation.MaxOperations},
		"no more operations, announced before":     {full: true, announced: true, repeatable: true, answers: []answer{{operation: "op"}}, want: "made ended", operations: operation.MaxOperations},
		"a stop before the call":                   {stopped: true, want: "announced withdrawn", err: context.Canceled},
		"not sent":                                 {answers: []answer{{err: errNotSent}}, want: "announced made withdrawn", err: errNotSent},
		"a crash":                                  {answers: []answer{{err: errCrash}}, want: "announced made ended", err: errCrash},
		"a crash of a call with a key":             {repeatable: true, answers: []answer{{err: errCrash}, {operation: "op"}}, want: "announced made made ended", operations: 1},
		"crashes without end":                      {repeatable: true, answers: []answer{{err: errCrash}, {err: errCrash}, {err: errCrash}}, want: "announced made made made ended", err: errCrash},
		"a stop during the call":                   {answers: []answer{{"", errRefused, true}}, want: "announced made", err: errRefused},
		"a stop during the call with an operation": {answers: []answer{{"op", errRefused, true}}, want: "announced made ended", err: errRefused, operations: 1},
	} {
		t.Run(name, func(t *testing.T) {
			c, steps := newTestCaller(), []string(nil)
			for range map[bool]int{true: operation.MaxOperations}[tt.full] {
				c.Operations.AddOperation(0)
			}
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			_, ended, err := Once(ctx, c, &Call[string]{
				Name: "action a: Execute of b", Announced: tt.announced, Repeatable: tt.repeatable,
				Announce: func(context.Context) error {
					steps = append(steps, "announced")
					if tt.stopped {
						stop()
					}
					return nil
				},
				Withdraw: func() { steps = append(steps, "withdrawn") },
				Make: func(context.Context) (string, error) {
					steps = append(steps, "made")
					a := tt.answers[0]
					tt.answers = tt.answers[1:]
					if a.stop {
						stop()
					}
					return a.operation, a.err
				},
				Began: func(result *string) bool { return *result != "" },
			})
			if ended {
				steps = append(steps, "ended")
			}
			require.ErrorIs(t, err, tt.err)
			require.Empty(t, tt.answers)
			require.Equal(t, tt.want, strings.Join(steps, " "))
			require.Equal(t, tt.operations, countOperations(t, c.Operations))
		})
	}
}

// countOperations fills a counter, and returns how many operations it had.
func countOperations(t *testing.T, c *operation.Counter) int {
	t.Helper()
	for left := 0; ; left++ {
		if c.ReserveOperation() != nil {
			return operation.MaxOperations - left
		}
	}
}

// A process that dies takes with it what it was answering for others: these calls are repeated one at a
// time, and cost only the object to blame.
func TestCallsThatOneBroughtDownAreRepeatedAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCaller()
		var group, first sync.WaitGroup
		var repeating atomic.Int32
		first.Add(2)
		for _, blamed := range []bool{true, false} {
			calls := 0
			group.Go(func() {
				_, err := Retry(t.Context(), c, func(context.Context) (string, error) {
					if calls++; calls == 1 {
						first.Done()
						first.Wait()
						return "", errCrash
					}
					defer repeating.Add(-1)
					if assert.EqualValues(t, 1, repeating.Add(1)) {
						synctest.Wait() // until the other call has ended or waits
					}
					if blamed {
						return "", errCrash
					}
					return "", nil
				})
				assert.Equal(t, blamed, errors.Is(err, errCrash))
			})
		}
		group.Wait()
	})
}

func TestAnswersAreTakenFromTheRecord(t *testing.T) {
	given, left := action.FromJSON([]byte(`{"kind":"A"}`)), action.FromJSON([]byte(`{"kind":"B"}`))
	items := Items([]operation.Resource{{Group: "g", Resource: "r", Namespace: "n", Name: "x"}})
	a, err := NewAnswer("a", given, left, items, nil)
	require.NoError(t, err)
	require.Equal(t, items, Items(a.Additional))
	o, err := a.Object(given)
	require.NoError(t, err)
	raw, err := o.JSON()
	require.NoError(t, err)
	require.JSONEq(t, `{"kind":"B"}`, string(raw))

	a, err = NewAnswer("a", given, given, nil, nil)
	require.NoError(t, err)
	require.Empty(t, a.Body)
	o, err = a.Object(given)
	require.NoError(t, err)
	require.Same(t, given, o)

	a, err = NewAnswer("a", given, left, items, errRefused)
	require.ErrorIs(t, err, errRefused)
	require.Empty(t, a.Additional)
	_, err = a.Object(given)
	require.EqualError(t, err, errRefused.Error())
}
