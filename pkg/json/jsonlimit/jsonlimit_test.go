package jsonlimit_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit"
)

// hostileTexts are texts that take many times their length once they are decoded.
func hostileTexts(length int) map[string][]byte {
	list := func(element string) []byte {
		return []byte("[" + strings.Repeat(element+",", length/(len(element)+1)) + element + "]")
	}
	in := func(list []byte) []byte { return append(append([]byte(`{"a":`), list...), '}') }
	deep := bytes.Repeat([]byte(`{"":`), 5000)
	deep = append(append(deep, '0'), bytes.Repeat([]byte("}"), 5000)...)
	keys := []byte(`{"":0`)
	for i := range length / 9 {
		keys = append(keys, `,"`...)
		keys = append(keys, []byte{'a' + byte(i%26), 'a' + byte(i/26%26), 'a' + byte(i/676%26), 'a' + byte(i/17576%26)}...)
		keys = append(keys, `":0`...)
	}
	return map[string][]byte{
		"empty objects": in(list("{}")), "objects": in(list(`{"":0}`)), "numbers": in(list("0")), "fractions": in(list("1e9")), "texts": in(list(`"a"`)),
		"arrays": in(list("[]")), "arrays of one": in(list("[0]")), "keys": append(keys, '}'), "depth": in(list(string(deep))), "nulls": in(list("null")),
	}
}

// measureLive returns what do keeps alive, and how much it allocated, in bytes.
func measureLive(do func() any) (kept, allocated uint64) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	result := do()
	runtime.ReadMemStats(&after)
	allocated = after.TotalAlloc - before.TotalAlloc
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(result)
	return after.HeapAlloc - min(before.HeapAlloc, after.HeapAlloc), allocated
}

// Eight MiB of "{}," in a plugin's answer are 180 MiB of maps: the text was short enough for every
// limit on its length.
func TestAnObjectOfManyValuesIsNotDecoded(t *testing.T) {
	for name, text := range hostileTexts(12 << 20) {
		if name == "nulls" {
			continue // 16 bytes for each 5
		}
		var err error
		_, allocated := measureLive(func() any { _, err = jsonlimit.UnmarshalObject(text); return nil })
		if err == nil {
			require.Less(t, jsonlimit.DecodedSize(text), jsonlimit.Object, name)
			continue
		}
		require.ErrorIs(t, err, jsonlimit.ErrLimit, name)
		require.Less(t, allocated, uint64(1<<20), name)
	}
}

// A reckoning below the truth would let through what it is there to keep out.
func TestNoTextTakesMoreThanReckoned(t *testing.T) {
	for name, text := range hostileTexts(800 << 10) {
		kept, _ := measureLive(func() any {
			object, err := jsonlimit.UnmarshalObject(text)
			require.NoError(t, err, name)
			return object
		})
		t.Logf("%s: %d bytes of text, %d live, %d reckoned", name, len(text), kept, jsonlimit.DecodedSize(text))
		require.LessOrEqual(t, kept, uint64(jsonlimit.DecodedSize(text)), name)
	}
}

// What an API server stores at most is restored, however dense it is.
func TestTheLargestObjectOfAnAPIServerIsDecoded(t *testing.T) {
	t.Parallel()
	for name, element := range map[string]string{"variables": `{"name":"x","value":"y"}`, "fields": `{"f:a":{},"f:b":{"f:c":{}}}`, "numbers": "1.5", "names": `"abc"`} {
		text := `{"a":[` + strings.Repeat(element+",", 3<<19/(len(element)+1)) + element + `]}`
		_, err := jsonlimit.UnmarshalObject([]byte(text))
		require.NoError(t, err, name)
	}
}

type entry struct {
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels"`
	Pod    *corev1.PodSpec   `json:"pod"`
	Since  time.Time         `json:"since"`
	Many   [8]string         `json:"many"`
}

// A struct of a kilobyte is made of two bytes of text, so that a limit for maps would not do for
// lists of structs.
func TestListsOfStructsAreReckonedBySize(t *testing.T) {
	for name, text := range map[string]string{"objects": "[" + strings.Repeat("{},", 1<<20) + "{}]", "nulls": "[" + strings.Repeat("null,", 1<<20) + "{}]",
		"pointers": "[" + strings.Repeat(`{"pod":{}},`, 1<<18) + "{}]"} {
		var into []entry
		var err error
		raw := []byte(text)
		_, allocated := measureLive(func() any { err = jsonlimit.Unmarshal(raw, &into, 32<<20); return nil })
		require.ErrorIs(t, err, jsonlimit.ErrLimit, name)
		require.Less(t, allocated, uint64(1<<20), name)
	}
	var into []entry
	require.NoError(t, jsonlimit.Unmarshal([]byte(`[{"name":"a","labels":{"b":"c"},"pod":{"nodeName":"n"},"since":"2026-01-02T03:04:05Z"},{}]`), &into, 32<<20))
	require.Len(t, into, 2)
	require.Equal(t, "n", into[0].Pod.NodeName)
}

func TestEach(t *testing.T) {
	t.Parallel()
	limits := jsonlimit.Limits{Text: 1 << 10, Element: 100, Decoded: 1 << 20}
	read := func(text string) (names []string, err error) {
		err = jsonlimit.Each(strings.NewReader(text), limits, func(e *entry) error { names = append(names, e.Name); return nil })
		return names, err
	}
	names, err := read(` [ {"name":"a"}, {"name":"b"} ] ` + "\n")
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b"}, names)
	for _, text := range []string{"null", "[]"} {
		names, err = read(text)
		require.NoError(t, err)
		require.Empty(t, names)
	}
	for _, text := range []string{"", "[", `[{"name":"a"}`, `[{"name":"a"`, "{}", "1", "[] []", `[{"name":1}]`} {
		_, err = read(text)
		require.Error(t, err, text)
		require.NotErrorIs(t, err, io.EOF, text)
	}
	for name, text := range map[string]string{"element": `[{"name":"` + strings.Repeat("a", 200) + `"}]`, "space": "[" + strings.Repeat(" ", 900) + "]",
		"text": "[" + strings.Repeat("{},", 400) + "{}]"} {
		_, err = read(text)
		require.ErrorIs(t, err, jsonlimit.ErrLimit, name)
	}
	stop := errors.New("enough")
	require.ErrorIs(t, jsonlimit.Each(strings.NewReader("[{},{}]"), limits, func(*entry) error { return stop }), stop)
}

// FuzzUnmarshalObject holds what is decoded against encoding/json, and what it allocates against
// the text's length.
func FuzzUnmarshalObject(f *testing.F) {
	for _, text := range hostileTexts(100) {
		f.Add(text)
	}
	f.Add([]byte(`{"a":"}{[,:\"","b":[[],{}],"c":{"d":1}}`))
	f.Add([]byte(`]}{[`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var object map[string]any
		var err error
		kept, _ := measureLive(func() any { object, err = jsonlimit.UnmarshalObject(text); return object })
		require.LessOrEqual(t, kept, uint64(jsonlimit.DecodedSize(text)+64<<10))
		var want map[string]json.RawMessage
		if wrong := json.Unmarshal(text, &want); wrong != nil {
			return
		}
		require.NoError(t, err)
		require.Len(t, object, len(want))
	})
}

// Whether a text is taken must not depend on how its bytes come: what is written was checked in
// memory, and is read from a network.
func TestWhetherAnElementIsTakenDoesNotDependOnTheReader(t *testing.T) {
	const limit = 1000
	limits := jsonlimit.Limits{Text: 1 << 20, Element: limit, Decoded: 1 << 20}
	for _, first := range []int{10, limit / 2, limit - 1, limit} {
		for length, taken := range map[int]bool{limit - 1: true, limit: true, limit + 1: false, limit + first: false} {
			text := `{"other":1,"list":["` + strings.Repeat("x", first-2) + `","` + strings.Repeat("y", length-2) + `"]}`
			for name, r := range map[string]io.Reader{
				"whole": strings.NewReader(text), "half": iotest.HalfReader(strings.NewReader(text)), "bytes": iotest.OneByteReader(strings.NewReader(text)),
			} {
				err := jsonlimit.EachIn(r, "list", limits, func(string, json.RawMessage) error { return nil }, func(*string) error { return nil })
				require.Equal(t, taken, err == nil, "%s: %d after %d: %v", name, length, first, err)
			}
		}
	}
}
