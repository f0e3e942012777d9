package history

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/archive/nativesnapshot"
	"github.com/holdfast-io/holdfast/pkg/job/effect"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
)

// Each snapshot that is begun costs a write to the bucket of its own, however many are begun
// together.
func TestWhatIsBegunTogetherSharesARecord(t *testing.T) {
	store := memstore.New()
	records, err := checkpoint.Open(t.Context(), store, "b1", "uid-1", 1)
	require.NoError(t, err)
	log := NewLog(records)
	const n = 40
	writing := make(chan struct{})
	var once sync.Once
	store.Inject(func(op memstore.Op, key string) error {
		if op == memstore.OpCreate && strings.Contains(key, "/checkpoint-") {
			once.Do(func() { <-writing }) // the first record takes its time
		}
		return nil
	})
	var all, gathered sync.WaitGroup
	gathered.Add(n)
	for i := range n {
		all.Go(func() {
			assert.NoError(t, log.announceIntents(t.Context(), func(in *checkpoint.Record) {
				defer gathered.Done()
				if i%2 == 0 {
					in.Intended = append(in.Intended, nativesnapshot.Snapshot{Spec: nativesnapshot.Spec{PersistentVolumeName: fmt.Sprint("pv-", i)}})
				} else {
					in.Intents = append(in.Intents, checkpoint.Call{Action: fmt.Sprint("a.io/", i)})
				}
			}))
		})
	}
	gathered.Wait()
	close(writing)
	all.Wait()
	var intended, files int
	for _, key := range store.Keys() {
		require.NoError(t, checkpoint.Each(t.Context(), store, "b1", "uid-1", []string{key}, func(_ string, rec *checkpoint.Record) error {
			files++
			intended += len(rec.Intents) + len(rec.Intended)
			return nil
		}))
	}
	require.Equal(t, n, intended)
	require.LessOrEqual(t, files, 2, "what was begun first, and what came meanwhile")
}

// A record with a part could be durable before the outcomes of calls about the objects in it, where
// these were more than one record takes: what a call began was lost with the process then.
func TestARecordComesAfterAllOutcomesBeforeIt(t *testing.T) {
	store := memstore.New()
	records, err := checkpoint.Open(t.Context(), store, "b1", "uid-1", 1)
	require.NoError(t, err)
	log := NewLog(records)
	const n, size = 6, 3 << 20
	body := []byte(`"` + strings.Repeat("x", size) + `"`)
	for i := range n {
		log.End(&checkpoint.Outcome{Call: checkpoint.Call{Action: fmt.Sprint("a.io/", i)}, Answer: effect.Answer{Body: body}})
	}
	key, err := log.Append(t.Context(), checkpoint.Record{Part: checkpoint.Part{Items: 1}})
	require.NoError(t, err)
	require.False(t, log.Pending())
	outcomes := 0
	keys := records.Earlier()
	for _, k := range store.Keys() {
		if strings.Contains(k, "/checkpoint-") {
			keys = append(keys, k)
		}
	}
	require.Equal(t, key, keys[len(keys)-1])
	require.NoError(t, checkpoint.Each(t.Context(), store, "b1", "uid-1", keys, func(_ string, rec *checkpoint.Record) error {
		outcomes += len(rec.Outcomes)
		return nil
	}))
	require.Equal(t, n, outcomes)
}

// Those that wait for a record of a batch get an error where its write panics, and are not left waiting.
func TestAPanicWhileIntentsAreWrittenReleasesTheOthers(t *testing.T) {
	store := memstore.New()
	records, err := checkpoint.Open(t.Context(), store, "b1", "uid-1", 1)
	require.NoError(t, err)
	store.Inject(func(op memstore.Op, key string) error {
		if op == memstore.OpCreate && strings.Contains(key, "/checkpoint-") {
			panic("a defect in writing")
		}
		return nil
	})
	log := NewLog(records)
	log.writing.Lock() // the two are in one batch
	panicked, failed := make(chan any, 1), make(chan error, 1)
	gathered := make(chan struct{})
	add := func(in *checkpoint.Record) {
		in.Intents = append(in.Intents, checkpoint.Call{Action: "a.io/x"})
		gathered <- struct{}{}
	}
	go func() {
		defer func() { panicked <- recover() }()
		_ = log.announceIntents(t.Context(), add)
	}()
	<-gathered
	go func() { failed <- log.announceIntents(t.Context(), add) }()
	<-gathered
	log.writing.Unlock()
	require.Equal(t, "a defect in writing", <-panicked)
	require.ErrorIs(t, <-failed, errNotWritten)
}
