package jsonlist_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/json/jsonlist"
)

const (
	coreList = `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"42","continue":"abc","remainingItemCount":7},` +
		`"items":[{"metadata":{"name":"a","managedFields":[{"x":"}]"}]},"spec":{"n":-1.5e+3}},{"metadata":{"name":"b"},"status":{}}]}` + "\n"
	customList = `{"apiVersion":"g/v1","items":[{"apiVersion":"g/v1","kind":"W","metadata":{"name":"a"}}],` +
		`"kind":"WList","metadata":{"continue":"","resourceVersion":"43"}}`
)

type got struct {
	raw, meta string
	typeMeta  bool
	spaced    bool
}

func readAll(r *jsonlist.Reader) ([]got, error) {
	var all []got
	for {
		it, err := r.Next()
		if errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		all = append(all, got{string(it.Raw), string(it.Metadata), it.HasTypeMeta, it.Spaced})
	}
}

func readList(body string) ([]got, jsonlist.ListMeta, error) {
	r := jsonlist.NewReader(strings.NewReader(body), jsonlist.Options{})
	all, err := readAll(r)
	return all, r.List(), err
}

func TestCoreListKeepsMetadataAheadOfItems(t *testing.T) {
	t.Parallel()
	items, meta, err := readList(coreList)
	require.NoError(t, err)
	require.Equal(t, jsonlist.ListMeta{APIVersion: "v1", Kind: "PodList", ResourceVersion: "42", Continue: "abc", Remaining: 7}, meta)
	require.Equal(t, []got{
		{raw: `{"metadata":{"name":"a","managedFields":[{"x":"}]"}]},"spec":{"n":-1.5e+3}}`, meta: `{"name":"a","managedFields":[{"x":"}]"}]}`},
		{raw: `{"metadata":{"name":"b"},"status":{}}`, meta: `{"name":"b"}`},
	}, items)
}

func TestCustomResourceListKeepsMetadataBehindItems(t *testing.T) {
	t.Parallel()
	items, meta, err := readList(customList)
	require.NoError(t, err)
	require.Equal(t, jsonlist.ListMeta{APIVersion: "g/v1", Kind: "WList", ResourceVersion: "43", Remaining: -1}, meta)
	require.Equal(t, []got{{raw: `{"apiVersion":"g/v1","kind":"W","metadata":{"name":"a"}}`, meta: `{"name":"a"}`, typeMeta: true}}, items)
}

func TestEmptyLists(t *testing.T) {
	t.Parallel()
	for _, body := range []string{
		`{"kind":"L","items":[]}`, `{"kind":"L","items":null}`, ` {"kind":"PodList"} `, `{"items" : [ ] , "metadata":null}`,
	} {
		items, _, err := readList(body)
		require.NoError(t, err, body)
		require.Empty(t, items)
	}
}

func TestOddTypeMetaIsCutOut(t *testing.T) {
	t.Parallel()
	items, _, err := readList(`{"items":[{"kind":"","metadata":{"name":"a"},"apiVersion":"v1","x":1},{"kind":"K"},{"apiVersion":null,"kind":"K","a":2},{"kind":"K","apiVersion":"v1"}]}`)
	require.NoError(t, err)
	require.Equal(t, []got{
		{raw: `{"metadata":{"name":"a"},"x":1}`, meta: `{"name":"a"}`}, {raw: `{}`}, {raw: `{"a":2}`},
		{raw: `{"kind":"K","apiVersion":"v1"}`, typeMeta: true},
	}, items)
}

func TestSpacedItemsAreMarked(t *testing.T) {
	t.Parallel()
	items, _, err := readList("{ \"items\": [ {\"a\":\"x y\"}, {\"a\": 1}\n] }")
	require.NoError(t, err)
	require.Equal(t, []got{{raw: `{"a":"x y"}`}, {raw: `{"a": 1}`, spaced: true}}, items)
}

func TestEveryTruncationIsAnError(t *testing.T) {
	t.Parallel()
	for _, body := range []string{strings.TrimSpace(coreList), customList} {
		for n := range len(body) {
			_, _, err := readList(body[:n])
			require.ErrorIs(t, err, io.ErrUnexpectedEOF, body[:n])
		}
	}
}

func TestReadingByteByByteChangesNothing(t *testing.T) {
	t.Parallel()
	for _, body := range []string{coreList, customList} {
		want, wantMeta, err := readList(body)
		require.NoError(t, err)
		r := jsonlist.NewReader(iotest.OneByteReader(strings.NewReader(body)), jsonlist.Options{})
		items, err := readAll(r)
		require.NoError(t, err)
		require.Equal(t, want, items)
		require.Equal(t, wantMeta, r.List())
	}
}

func TestBodiesThatAreNoList(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]error{
		`[]`: jsonlist.ErrNotList, `{}`: jsonlist.ErrNotList, `{"kind":"Status","status":"Failure"}`: jsonlist.ErrNotList,
		`{"items":{}}`: jsonlist.ErrNotList, `{"items":[1]}`: jsonlist.ErrNotList, `{"items":[null]}`: jsonlist.ErrNotList,
		`{"items":[],"items":[]}`: jsonlist.ErrNotList, `{"items":[],"metadata":[]}`: jsonlist.ErrNotList, `{"items":[],"kind":3}`: jsonlist.ErrNotList,
		`{"items":[]}x`: jsonlist.ErrSyntax, `{"items":[{}{}]}`: jsonlist.ErrSyntax, `{"items":[{"a":01}]}`: jsonlist.ErrSyntax,
		`{"items":[{"a":"\x"}]}`: jsonlist.ErrSyntax, "{\"items\":[{\"a\":\"\n\"}]}": jsonlist.ErrSyntax, `{"items":[{"a":[}]}]}`: jsonlist.ErrSyntax,
		`{"items":[{"a" 1}]}`: jsonlist.ErrSyntax, `{"items":[{"a":tru}]}`: jsonlist.ErrSyntax, `{"items":[{},]}`: jsonlist.ErrNotList, `{"items":[{"a":1,}]}`: jsonlist.ErrSyntax,
	} {
		_, _, err := readList(body)
		require.ErrorIs(t, err, want, body)
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	body := `{"items":[{"a":"` + strings.Repeat("x", 1000) + `"},{"b":1}]}`
	_, err := readAll(jsonlist.NewReader(strings.NewReader(body), jsonlist.Options{MaxItemBytes: 500}))
	require.ErrorIs(t, err, jsonlist.ErrItemTooLarge)
	items, err := readAll(jsonlist.NewReader(strings.NewReader(body), jsonlist.Options{MaxItemBytes: 1100}))
	require.NoError(t, err)
	require.Len(t, items, 2)
	deep := `{"items":[{"a":` + strings.Repeat("[", 50) + strings.Repeat("]", 50) + `}]}`
	_, err = readAll(jsonlist.NewReader(strings.NewReader(deep), jsonlist.Options{MaxDepth: 52}))
	require.ErrorIs(t, err, jsonlist.ErrTooDeep)
	_, err = readAll(jsonlist.NewReader(strings.NewReader(deep), jsonlist.Options{MaxDepth: 53}))
	require.NoError(t, err)
}

func TestErrorsOfTheBodyAreKept(t *testing.T) {
	t.Parallel()
	broken := errors.New("connection reset")
	r := jsonlist.NewReader(io.MultiReader(strings.NewReader(coreList[:150]), iotest.ErrReader(broken)), jsonlist.Options{})
	_, err := readAll(r)
	require.ErrorIs(t, err, broken)
	_, err = r.Next()
	require.ErrorIs(t, err, broken, "an error is final")
	r.Reset(strings.NewReader(coreList))
	items, err := readAll(r)
	require.NoError(t, err)
	require.Len(t, items, 2)
}

func TestItemsFarLargerThanTheBuffer(t *testing.T) {
	t.Parallel()
	var body bytes.Buffer
	body.WriteString(`{"kind":"L","items":[`)
	sizes := []int{3 << 20, 10, 700 << 10, 128 << 10, 1, 5 << 20}
	for i, n := range sizes {
		if i > 0 {
			body.WriteByte(',')
		}
		fmt.Fprintf(&body, `{"metadata":{"name":"n%d"},"data":%q}`, i, strings.Repeat("y", n))
	}
	body.WriteString(`]}`)
	r := jsonlist.NewReader(&body, jsonlist.Options{})
	items, err := readAll(r)
	require.NoError(t, err)
	require.Len(t, items, len(sizes))
	for i, it := range items {
		require.Equal(t, fmt.Sprintf(`{"name":"n%d"}`, i), it.meta)
		require.True(t, json.Valid([]byte(it.raw)))
		require.Greater(t, len(it.raw), sizes[i])
	}
}

func TestParseObject(t *testing.T) {
	t.Parallel()
	it, err := jsonlist.ParseObject([]byte(" {\"kind\":\"K\",\"apiVersion\":\"v1\", \"metadata\":{\"name\":\"a\"}}\n"))
	require.NoError(t, err)
	require.Equal(t, `{"kind":"K","apiVersion":"v1", "metadata":{"name":"a"}}`, string(it.Raw))
	require.Equal(t, `{"name":"a"}`, string(it.Metadata))
	require.True(t, it.HasTypeMeta)
	require.True(t, it.Spaced)
	for _, bad := range []string{"", " ", "[]", "null", "{", `{"a":1}{`, `{"a"}`} {
		_, err := jsonlist.ParseObject([]byte(bad))
		require.Error(t, err, bad)
	}
}

// What a list says about itself is kept with every page and asked for again: a token of megabytes
// is none.
func TestListMetadataIsBounded(t *testing.T) {
	for _, field := range []string{`"metadata":{"resourceVersion":"1","continue":"%s"}`, `"kind":"%s"`, `"apiVersion":"%s"`} {
		for size, want := range map[int]error{60 << 10: io.EOF, 70 << 10: jsonlist.ErrItemTooLarge} {
			body := "{" + fmt.Sprintf(field, strings.Repeat("x", size)) + `,"items":[]}`
			_, err := jsonlist.NewReader(strings.NewReader(body), jsonlist.Options{}).Next()
			require.ErrorIs(t, err, want, "%s of %d bytes", field, size)
		}
	}
}

// The caller that reads many lists decides when one may hold a large item.
func TestLargeItemsAreAskedFor(t *testing.T) {
	refused := errors.New("not now")
	for size, want := range map[int]error{900 << 10: nil, 1100 << 10: refused} {
		body := `{"items":[{"metadata":{"name":"a"},"data":"` + strings.Repeat("x", size) + `"}]}`
		r := jsonlist.NewReader(strings.NewReader(body), jsonlist.Options{LargeBytes: 1 << 20, Large: func() error { return refused }})
		_, err := r.Next()
		require.ErrorIs(t, err, want)
	}
}
