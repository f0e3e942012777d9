package pluginhost

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	"github.com/holdfast-io/holdfast/pkg/action"
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
		o.end()
		lines := json.NewDecoder(&logged)
		for lines.More() {
			var line struct{ Msg string }
			require.NoError(t, lines.Decode(&line))
			require.LessOrEqual(t, len(line.Msg), 3*maxLine, "a byte that is no text becomes three")
		}
	})
}

func FuzzAnswer(f *testing.F) {
	const sent = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"namespace":"a","name":"b"}}`
	f.Add([]byte(sent))
	f.Add([]byte(`{"apiVersion":"apps/v2","kind":"Deployment","metadata":{"namespace":"a","name":"c"}}`))
	f.Add([]byte(`null`))
	f.Add([]byte(`{"kind":["Deployment"]}`))
	f.Fuzz(func(t *testing.T, answer []byte) {
		for _, renamed := range []bool{false, true} {
			object, err := answerOf(action.FromJSON([]byte(sent)), answer, renamed)
			if err != nil {
				require.ErrorIs(t, err, ErrMalformed)
				continue
			}
			id, err := object.Identity()
			require.NoError(t, err)
			require.Equal(t, "Deployment.apps", id.Kind.GroupKind().String())
			if !renamed {
				require.Equal(t, "Deployment.apps a/b", id.String())
			}
		}
	})
}
