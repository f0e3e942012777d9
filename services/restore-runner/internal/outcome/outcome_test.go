package outcome

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/job/effect"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit/limittest"
	"github.com/holdfast-io/holdfast/pkg/spec/selection"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/plan"
)

type items []manifest.Item

func (s items) Items(context.Context) iter.Seq2[manifest.Item, error] {
	return func(yield func(manifest.Item, error) bool) {
		for _, i := range s {
			if !yield(i, nil) {
				return
			}
		}
	}
}

// newRecorder is one of a plan with nodes 0: namespace a, 1: configmap a/x, 2: configmap a-b/x, 3:
// deployment a/d.
func newRecorder(t *testing.T, w io.Writer) *Recorder {
	t.Helper()
	filter, err := selection.NewFilter(selection.Spec{}, []string{"*"}, nil)
	require.NoError(t, err)
	p, err := plan.Build(t.Context(), items{
		{Version: "v1", Kind: "Namespace", Resource: "namespaces", Name: "a", Preferred: true},
		{Version: "v1", Kind: "ConfigMap", Resource: "configmaps", Namespace: "a", Name: "x", Preferred: true},
		{Version: "v1", Kind: "ConfigMap", Resource: "configmaps", Namespace: "a-b", Name: "x", Preferred: true},
		{Group: "apps", Version: "v1", Kind: "Deployment", Resource: "deployments", Namespace: "a", Name: "d", Preferred: true},
	}, plan.Config{Filter: filter, Mapping: map[string]string{"a": "z"}})
	require.NoError(t, err)
	r := NewRecorder(NewLog(w, "velero/r"), clocktesting.NewFakePassiveClock(time.Unix(0, 0)), 100, t.TempDir())
	r.SetPlan(p)
	return r
}

func recordDone(r *Recorder, node int32, action apply.Action, messages ...string) {
	e := r.Begin(node)
	for _, m := range messages {
		e.Error(m)
	}
	e.Done(action, "")
	e.Commit()
}

func TestFiles(t *testing.T) {
	var log bytes.Buffer
	r := newRecorder(t, &log)
	fillRecorder(r)
	checkFiles(t, r, &log)
}

func fillRecorder(r *Recorder) {
	recordDone(r, 0, apply.Skipped)
	recordDone(r, 1, apply.Created)
	recordDone(r, 2, apply.Failed, "no room")
	r.Warn(0, "odd")
	r.Warn(General, "zero of something")
}

func checkFiles(t *testing.T, r *Recorder, log *bytes.Buffer) {
	t.Helper()
	require.Equal(t, Counts{Total: 4, Done: 3, Warnings: 2, Errors: 1}, r.Counts())
	require.Equal(t, apply.Failed, r.Action(2))
	require.Equal(t, map[string]int{"created": 1, "failed": 1, "skipped": 1}, r.ByAction())

	var list, results bytes.Buffer
	require.NoError(t, r.Files().WriteResourceList(&list))
	require.Equal(t, `{"v1/ConfigMap":["a-b/x(failed)","z/x(created)"],"v1/Namespace":["z(skipped)"]}`+"\n", list.String())
	require.NoError(t, r.Files().WriteResults(&results))
	require.JSONEq(t, `{"warnings":{"velero":["zero of something"],"cluster":["namespaces z: odd"]},
		"errors":{"namespaces":{"a-b":["configmaps a-b/x: no room"]}}}`, results.String())
	require.NoError(t, r.Files().CloseLog())
	zip, err := gzip.NewReader(log)
	require.NoError(t, err)
	text, err := io.ReadAll(zip)
	require.NoError(t, err)
	require.Contains(t, string(text), `time="1970-01-01T00:00:00Z" level=error msg="no room" logSource=holdfast/restore-runner name=x namespace=a-b resource=configmaps restore=velero/r`)
	require.Equal(t, 6, strings.Count(string(text), "\n"))
}

func TestNothingRestoredIsAnEmptyList(t *testing.T) {
	var list bytes.Buffer
	require.NoError(t, newRecorder(t, io.Discard).Files().WriteResourceList(&list))
	require.Equal(t, "{}\n", list.String())
}

// flaky is a bucket whose next answer may be lost.
type flaky struct {
	Store
	files [][]byte
	fail  bool
}

func (f *flaky) Add(_ context.Context, data []byte) error {
	f.files = append(f.files, bytes.Clone(data))
	if f.fail {
		f.fail = false
		return errors.New("broken")
	}
	return nil
}

func TestRecordsBringAnotherRecorderToTheSamePlace(t *testing.T) {
	r, bucket := newRecorder(t, io.Discard), &flaky{}
	require.NoError(t, r.Flush(t.Context(), bucket))
	fillRecorder(r)
	require.NoError(t, r.Flush(t.Context(), bucket))
	require.Empty(t, bucket.files, "kept back until the plan is recorded")
	r.Planned(&Planned{Resolved: []Resolved{{Text: "cm", Resource: "configmaps", Namespaced: true, Known: true}}})
	bucket.fail = true
	require.ErrorContains(t, r.Flush(t.Context(), bucket), "broken")
	e := r.Begin(1)
	e.Owes(&Owes{UID: "u1", Later: []LaterReference{{UID: "old"}}})
	e.Commit()
	r.Intend(3, apply.IntentUpdate)
	lost := r.Begin(General)
	lost.Lost("z", "is going away")
	lost.Step("earlier")
	lost.Commit()
	require.NoError(t, r.Flush(t.Context(), bucket))
	require.Len(t, bucket.files, 3)
	require.Equal(t, bucket.files[0], bucket.files[1], "an attempt whose answer was lost is repeated with the same bytes")
	require.NoError(t, r.Flush(t.Context(), bucket))
	require.Len(t, bucket.files, 3, "nothing to record")

	var log bytes.Buffer
	again, history := newRecorder(t, &log), &History{}
	var head Head
	for _, file := range bucket.files[1:] {
		require.NoError(t, head.ReadHead(file))
		require.NoError(t, again.Replay(file, history))
	}
	require.Equal(t, "configmaps", head.Planned.Resolved[0].Resource)
	require.Nil(t, head.Finished)
	require.Equal(t, map[int32]apply.Intent{3: apply.IntentUpdate}, history.Intents)
	require.EqualValues(t, "u1", history.Owing[1].UID)
	require.Equal(t, map[string]string{"z": "is going away"}, history.Lost)
	require.True(t, history.Passed("earlier"))
	require.False(t, history.Passed(StepDefinitions))
	checkFiles(t, again, &log)

	more := &flaky{}
	again.Open()
	linked := again.Begin(1)
	linked.Linked()
	linked.Commit()
	recordDone(again, 3, apply.Updated)
	end := again.Finish(Finished{Phase: "Failed", Reason: "no more"})
	require.Equal(t, Counts{Total: 4, Done: 4, Warnings: 2, Errors: 1}, end.Counts, "why a restore failed is no error of an object")
	require.NoError(t, again.Flush(t.Context(), more))
	require.NoError(t, head.ReadHead(more.files[0]))
	require.Equal(t, end, head.Finished)
	third := newRecorder(t, io.Discard)
	for _, file := range append(bucket.files[1:], more.files...) {
		require.NoError(t, third.Replay(file, history))
	}
	require.Equal(t, end.Counts, third.Counts())
	require.Empty(t, history.Owing)
	require.Empty(t, history.Intents)
}

func TestRecordsOfOtherPlansAndFormatsAreNotTakenForOurs(t *testing.T) {
	r, bucket := newRecorder(t, io.Discard), &flaky{}
	fillRecorder(r)
	r.Open()
	require.NoError(t, r.Flush(t.Context(), bucket))
	empty, history := NewRecorder(NewLog(io.Discard, "velero/r"), clocktesting.NewFakePassiveClock(time.Unix(0, 0)), 10, t.TempDir()), &History{}
	require.NoError(t, empty.Replay(bucket.files[0], history))
	require.Equal(t, 4, history.Unknown)
	require.Equal(t, Counts{Warnings: 1}, empty.Counts())
	packed := func(s string) []byte {
		var out bytes.Buffer
		zip := gzip.NewWriter(&out)
		_, err := io.WriteString(zip, s)
		require.NoError(t, errors.Join(err, zip.Close()))
		return out.Bytes()
	}
	for _, bad := range [][]byte{nil, []byte("hello"), packed(""), packed("{}"), packed(`{"formatVersion":2}`), packed("{\"formatVersion\":1}\n{"),
		bucket.files[0][:len(bucket.files[0])/2]} {
		require.ErrorIs(t, empty.Replay(bad, history), ErrFormat)
	}
}

func TestSyncWaitsForTheBucket(t *testing.T) {
	r, bucket := newRecorder(t, io.Discard), &flaky{}
	r.Open()
	require.NoError(t, r.Sync(t.Context()), "nothing was recorded")
	r.Intend(1, apply.IntentLabel)
	synced := make(chan error, 1)
	go func() { synced <- r.Sync(t.Context()) }()
	<-r.Wanted()
	require.Empty(t, synced)
	require.NoError(t, r.Flush(t.Context(), bucket))
	require.NoError(t, <-synced)

	r.Intend(1, apply.IntentLabel)
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("gone")
	cancel(gone)
	require.ErrorIs(t, r.Sync(ctx), gone)
}

func TestAnAbsentBucketIsWaitedForBeforeMemoryRunsOut(t *testing.T) {
	r := newRecorder(t, io.Discard)
	r.Open()
	require.NoError(t, r.Room(t.Context()))
	for range 5 * 16 {
		r.Info(General, strings.Repeat("x", 1<<16))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, r.Room(ctx), context.Canceled)
	dir := t.TempDir()
	require.NoError(t, r.Flush(t.Context(), &Dir{Path: dir}))
	require.NoError(t, r.Room(t.Context()))
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, files, 1)
	require.True(t, strings.HasPrefix(files[0].Name(), "record-"))
}

func FuzzReplay(f *testing.F) {
	f.Add([]byte(`{"resource":"configmaps","namespace":"a","name":"x","action":"created"}`))
	f.Add([]byte(`{"resource":"configmaps","namespace":"a","name":"x","asked":true}`))
	f.Add([]byte(`{"log":[{"t":1,"l":"error","m":"x"}],"lost":{},"owes":{},"finished":{}}`))
	f.Fuzz(func(t *testing.T, lines []byte) {
		data, err := packRecords(lines)
		require.NoError(t, err)
		r, history := newRecorder(t, io.Discard), &History{}
		require.Less(t, limittest.Allocated(func() { err = r.Replay(data, history) }), uint64(bound+1000*len(lines)))
		if err != nil {
			require.ErrorIs(t, err, ErrFormat)
		}
		c := r.Counts()
		require.LessOrEqual(t, c.Done, c.Total)
		require.NoError(t, r.Files().WriteResourceList(io.Discard))
	})
}

// gate is a store that stops before it stores.
type gate struct {
	Dir
	mu    sync.Mutex
	files int
	open  chan struct{}
}

func (g *gate) Add(ctx context.Context, data []byte) error {
	<-g.open
	g.mu.Lock()
	g.files++
	g.mu.Unlock()
	return g.Dir.Add(ctx, data)
}

// Each call of an action that may begin an operation costs a write to the bucket of its own.
func TestCallsThatAreAnnouncedTogetherShareARecord(t *testing.T) {
	r := newRecorder(t, io.Discard)
	r.Open()
	store := &gate{Dir: Dir{Path: t.TempDir()}, open: make(chan struct{})}
	ctx, stop := context.WithCancel(t.Context())
	var flushing, calling sync.WaitGroup
	flushing.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-r.Wanted():
				assert.NoError(t, r.Flush(t.Context(), store))
			}
		}
	})
	var announced sync.WaitGroup
	announced.Add(50)
	for i := range 50 {
		calling.Go(func() {
			r.Call(0, Call{Action: fmt.Sprint("a.io/", i)})
			announced.Done()
			assert.NoError(t, r.Sync(t.Context()))
		})
	}
	announced.Wait()
	close(store.open)
	calling.Wait()
	stop()
	flushing.Wait()
	require.LessOrEqual(t, store.files, 2, "what was announced first, and what came meanwhile")
}

// A plugin's answer may exceed the limit of a record: the successor could not read the records.
func TestAnAnswerThatIsTooLargeIsNotRecorded(t *testing.T) {
	r, bucket := newRecorder(t, io.Discard), &flaky{}
	r.Open()
	r.Call(1, Call{Action: "a.io/x"})
	r.Call(1, Call{Action: "a.io/x", Answer: &Answer{Answer: effect.Answer{Body: make([]byte, maxAnswer)}}})
	r.Call(1, Call{Action: "a.io/y", Answer: &Answer{Answer: effect.Answer{Body: make([]byte, maxAnswer/2)}, Skip: true}})
	r.Call(1, Call{Action: "a.io/b", Answer: &Answer{Answer: effect.Answer{Body: make([]byte, maxAnswer)}}, Begun: &operation.Operation{ID: "op"}})
	r.Call(1, Call{Action: "a.io/z"})
	r.Call(1, Call{Action: "a.io/z", NotSent: true})
	require.NoError(t, r.Flush(t.Context(), bucket))
	history, next := &History{}, newRecorder(t, io.Discard)
	for _, file := range bucket.files {
		require.NoError(t, next.Replay(file, history))
	}
	require.Equal(t, "op", next.Operations()[0].ID, "an operation is known whatever came with it")
	require.Nil(t, history.Calls[1]["a.io/b"])
	known, announced := history.Calls[1]["a.io/x"]
	require.True(t, announced)
	require.Nil(t, known, "how it ended is not known")
	require.True(t, history.Calls[1]["a.io/y"].Skip)
	require.NotContains(t, history.Calls[1], "a.io/z", "it still may be made")
}

// The job takes such an error for one that ends the restore.
func TestARecordThatTheWorkDirectoryDoesNotTake(t *testing.T) {
	d := Dir{Path: filepath.Join(t.TempDir(), "gone")}
	require.ErrorIs(t, d.Add(t.Context(), []byte("record")), ErrWorkDir)
}
