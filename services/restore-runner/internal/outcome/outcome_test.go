package outcome

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/holdfast-io/holdfast/pkg/manifest"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
	"github.com/holdfast-io/holdfast/pkg/selection"
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

// recorder is one of a plan with nodes 0: namespace a, 1: configmap a/x, 2: configmap a-b/x, 3: deployment a/d.
func recorder(t *testing.T, w io.Writer) *Recorder {
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
	r := NewRecorder(NewLog(w, "velero/r"), clocktesting.NewFakePassiveClock(time.Unix(0, 0)))
	r.SetPlan(p)
	return r
}

func TestFiles(t *testing.T) {
	var log bytes.Buffer
	r := recorder(t, &log)
	r.Done(0, apply.Skipped)
	r.Done(1, apply.Created)
	r.Done(2, apply.Failed)
	r.Error(2, "no room")
	r.Warn(0, "odd")
	r.Warn(General, "zero of something")
	require.Equal(t, Counts{Total: 4, Done: 3, Warnings: 2, Errors: 1}, r.Counts())
	require.Equal(t, apply.Failed, r.Action(2))
	require.Equal(t, map[string]int{"created": 1, "failed": 1, "skipped": 1}, r.ByAction())

	var list, results bytes.Buffer
	require.NoError(t, r.WriteResourceList(&list))
	require.Equal(t, `{"v1/ConfigMap":["a-b/x(failed)","z/x(created)"],"v1/Namespace":["z(skipped)"]}`+"\n", list.String())
	require.NoError(t, r.WriteResults(&results))
	require.JSONEq(t, `{"warnings":{"velero":["zero of something"],"cluster":["namespaces z: odd"]},
		"errors":{"namespaces":{"a-b":["configmaps a-b/x: no room"]}}}`, results.String())
	require.NoError(t, r.CloseLog())
	zip, err := gzip.NewReader(&log)
	require.NoError(t, err)
	text, err := io.ReadAll(zip)
	require.NoError(t, err)
	require.Contains(t, string(text), `time="1970-01-01T00:00:00Z" level=error msg="no room" logSource=holdfast/restore-runner name=x namespace=a-b resource=configmaps restore=velero/r`)
}

func TestNothingRestoredIsAnEmptyList(t *testing.T) {
	var list bytes.Buffer
	require.NoError(t, recorder(t, io.Discard).WriteResourceList(&list))
	require.Equal(t, "{}\n", list.String())
}

func TestRecords(t *testing.T) {
	r := recorder(t, io.Discard)
	memory := memstore.New()
	bucket := &Bucket{Writer: memory, Restore: "r", UID: "u", Epoch: 2}
	require.NoError(t, r.Flush(t.Context(), bucket))
	require.Empty(t, memory.Keys(), "nothing to record")
	r.Done(1, apply.Created)
	r.Error(2, "no room")
	require.ErrorContains(t, r.Flush(t.Context(), broken{}), "broken")
	require.NoError(t, r.Flush(t.Context(), bucket), "what could not be stored is kept")
	r.Done(3, apply.Updated)
	require.NoError(t, r.Flush(t.Context(), bucket))
	require.NoError(t, r.Flush(t.Context(), bucket))
	require.Equal(t, []string{"restores/r/records/u/0000000002-0000000001.json.gz", "restores/r/records/u/0000000002-0000000002.json.gz"}, memory.Keys())
	data, ok := memory.Bytes(memory.Keys()[0])
	require.True(t, ok)
	zip, err := gzip.NewReader(bytes.NewReader(data))
	require.NoError(t, err)
	decoder := json.NewDecoder(zip)
	var first, second Record
	require.NoError(t, decoder.Decode(&first))
	require.NoError(t, decoder.Decode(&second))
	require.Equal(t, Record{Kind: "v1/ConfigMap", Namespace: "z", Name: "x", Action: "created"}, first)
	require.Equal(t, Record{Kind: "v1/ConfigMap", Namespace: "a-b", Name: "x", Error: "no room"}, second)

	again := &Bucket{Writer: memory, Restore: "r", UID: "u", Epoch: 2}
	r.Done(0, apply.Skipped)
	require.NoError(t, r.Flush(t.Context(), again))
	require.Len(t, memory.Keys(), 3, "existing records are never replaced")

	dir := t.TempDir()
	r.Done(0, apply.Skipped)
	require.NoError(t, r.Flush(t.Context(), &Dir{Path: dir}))
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, files, 1)
	require.True(t, strings.HasPrefix(files[0].Name(), "record-"))
}

type broken struct{}

func (broken) Add(context.Context, []byte) error { return errors.New("broken") }
