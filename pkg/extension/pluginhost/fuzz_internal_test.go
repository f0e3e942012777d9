package pluginhost

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit"
	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit/limittest"
)

func FuzzOutput(f *testing.F) {
	f.Add([]byte(`{"@level":"error","@message":"m","k":{"a":[1]}}`+"\n"), 3)
	f.Add([]byte(`{"@message":1,"@level":[],"@timestamp":{}}`+"\n"), 7)
	f.Add([]byte("panic: x\r\n\r\n\xff\xfe{\n"), 0)
	f.Add(bytes.Repeat([]byte("x"), 2*maxLine+1), maxLine)
	f.Fuzz(func(t *testing.T, text []byte, at int) {
		var logged bytes.Buffer
		o := newOutput(t.Context(), slog.New(slog.NewJSONHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug})), clock.RealClock{}, Limits{}.withDefaults())
		at = min(max(at, 0), len(text))
		for _, piece := range [][]byte{text[:at], text[at:]} {
			n, err := o.Write(piece)
			require.NoError(t, err)
			require.Equal(t, len(piece), n)
		}
		o.endOutput()
		lines := json.NewDecoder(&logged)
		for lines.More() {
			var line struct{ Msg string }
			require.NoError(t, lines.Decode(&line))
			require.LessOrEqual(t, len(line.Msg), 3*maxLine, "a byte that is no text becomes three")
		}
	})
}

func TestAnswersThatOneDecoderReadsOtherwiseAreRefusedOrMadePlain(t *testing.T) {
	t.Parallel()
	sent := action.FromJSON([]byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"a","name":"b"}}`))
	for answer, why := range map[string]string{
		`{"apiVersion":"v1","Kind":"Pod","metadata":{"namespace":"a","name":"b"}}`:                         "a name in another case is another field",
		`{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"a","name":"x"},"METADATA":{"name":"b"}}`: "the other metadata is none",
		`{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"a"},"metadata":{"name":"b"}}`:            "the second replaces the first",
		`{"apiVersion":"v1","kind":"Pod","kind":"Secret","metadata":{"namespace":"a","name":"b"}}`:         "the last counts",
		`{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"a","name":["b"]}}`:                       "a list is no name",
		`{"apiVersion":"v1","kind":"Pod","metadata":[{"namespace":"a","name":"b"}]}`:                       "a list is no metadata",
		`{"apiVersion":1,"kind":"Pod","metadata":{"namespace":"a","name":"b"}}`:                            "a number is no version",
		`{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"a","name":"b"}}{"kind":"Pod"}`:           "two objects",
	} {
		_, err := answerOf(sent, []byte(answer), false)
		require.ErrorIs(t, err, ErrMalformed, why)
	}
	object, err := answerOf(sent, []byte(`{"apiVersion":"v1","kind":"Secret","kind":"Pod","metadata":{"namespace":"a","name":"b"}}`), false)
	require.NoError(t, err)
	text, err := object.JSON()
	require.NoError(t, err)
	require.Equal(t, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"b","namespace":"a"}}`, string(text), "each field goes on once")
}

func TestAFloodOfBytesIsBoundedAsOneOfLinesIs(t *testing.T) {
	t.Parallel()
	var logged bytes.Buffer
	limits := Limits{LogBurst: 100, LogRate: 0.001}.withDefaults()
	o := newOutput(t.Context(), slog.New(slog.NewJSONHandler(&logged, nil)), clock.RealClock{}, limits)
	line := []byte(`{"@level":"info","@message":"` + strings.Repeat("x", 39<<10) + `"}` + "\n")
	for range 50 {
		_, err := o.Write(line)
		require.NoError(t, err)
	}
	o.endOutput()
	require.Less(t, logged.Len(), limits.LogBurst*lineUnit)
	require.Equal(t, 11, bytes.Count(logged.Bytes(), []byte("\n")), "a line of 39 KiB counts as ten; the last tells of the rest")
	require.Contains(t, logged.String(), `"lines":40`)
}

// An answer of 8 MiB, the limit, decodes to 180 MiB of maps; the runner is out of memory, its
// successor repeats the call, and is as well.
func TestAnAnswerOfManyValuesIsAnError(t *testing.T) {
	for name, element := range map[string]string{"objects": "{}", "arrays": "[[]]", "fields": `{"":0}`, "numbers": "0"} {
		answer := limittest.Text(t, limittest.List(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"b"},"spec":[`, element, `]}`, 8<<20-2000))
		require.LessOrEqual(t, len(answer), Limits{}.withDefaults().Answer)
		var err error
		allocated := limittest.Allocated(func() { _, err = answerOf(action.FromJSON([]byte(`{"apiVersion":"v1","kind":"Pod"}`)), answer, true) })
		require.ErrorIs(t, err, ErrMalformed, name)
		require.ErrorContains(t, err, "too many values", name)
		require.Less(t, allocated, uint64(1<<20), name)
	}
}

func FuzzAnswer(f *testing.F) {
	const sent = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"namespace":"a","name":"b"}}`
	f.Add([]byte(sent))
	f.Add([]byte(`{"apiVersion":"apps/v2","kind":"Deployment","metadata":{"namespace":"a","name":"c"}}`))
	f.Add([]byte(`null`))
	f.Add([]byte(`{"apiVersion":"apps/v1","kind":"Deployment","KIND":"Secret","metadata":{"namespace":"a","name":"b"},"Metadata":{"name":"x"}}`))
	f.Add([]byte(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"namespace":"a"},"metadata":{"name":"b"}}`))
	f.Add([]byte(`{"kind":["Deployment"]}`))
	f.Add([]byte(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"c"}}`)) // allowed where actions may convert
	f.Add([]byte(`{"apiVersion":"v1","kind":"Secret","metadata":{"namespace":"c"}}`))
	f.Fuzz(func(t *testing.T, answer []byte) {
		for _, renamed := range []bool{false, true} {
			var object *action.Object
			var err error
			require.Less(t, limittest.Allocated(func() { object, err = answerOf(action.FromJSON([]byte(sent)), answer, renamed) }), uint64(2*jsonlimit.Object))
			if err != nil {
				require.ErrorIs(t, err, ErrMalformed)
				continue
			}
			text, err := object.JSON()
			require.NoError(t, err)
			var again map[string]any // another decoder, of what is passed on
			require.NoError(t, json.Unmarshal(text, &again))
			id, err := action.FromContent(again).Identity()
			require.NoError(t, err)
			require.NotEmpty(t, id.Name)
			if !renamed {
				require.Equal(t, "Deployment.apps a/b", id.String())
			}
		}
	})
}

// Catches answers that are compared by kind and name alone: a plugin that answers with the object
// of another namespace, or with a kind of the same name in another group, would have it stored or
// created in the place of the one it was sent.
func TestAnAnswerIsTheObjectThatWasSent(t *testing.T) {
	sent := action.FromJSON([]byte(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"namespace":"a","name":"b"}}`))
	for name, tt := range map[string]struct {
		answer              string
		taken, takenRenamed bool
	}{
		"another version":   {`{"apiVersion":"apps/v2","kind":"Deployment","metadata":{"namespace":"a","name":"b"}}`, true, true},
		"another name":      {`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"namespace":"a","name":"c"}}`, false, true},
		"another namespace": {`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"namespace":"c","name":"b"}}`, false, true},
		"no namespace":      {`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"b"}}`, false, true},
		"another group":     {`{"apiVersion":"example.com/v1","kind":"Deployment","metadata":{"namespace":"a","name":"b"}}`, false, true},
		"another kind":      {`{"apiVersion":"apps/v1","kind":"StatefulSet","metadata":{"namespace":"a","name":"b"}}`, false, true},
		"no name":           {`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"namespace":"a"}}`, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			for _, renamed := range []bool{false, true} {
				_, err := answerOf(sent, []byte(tt.answer), renamed)
				if want := tt.taken || renamed && tt.takenRenamed; want {
					require.NoError(t, err)
				} else {
					require.ErrorIs(t, err, ErrMalformed)
				}
			}
		})
	}
}
