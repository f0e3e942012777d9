package joblog_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/joblog"
)

func TestTheTailOfALogIsRead(t *testing.T) {
	t.Parallel()
	tail := joblog.NewTail(8)
	read := func(from int64, limit int, text string, next, leftOut int64) {
		t.Helper()
		gotText, gotNext, gotLeftOut := tail.Read(from, limit)
		require.Equal(t, []any{text, next, leftOut}, []any{gotText, gotNext, gotLeftOut})
	}
	read(0, 100, "", 0, 0)
	tail.Add("aa\n")
	tail.Add("bb\n")
	read(0, 1, "aa\n", 1, 0)
	read(0, 6, "aa\nbb\n", 2, 0)
	read(2, 6, "", 2, 0)
	tail.Add("cc\n")
	read(0, 100, "bb\ncc\n", 3, 1)
	read(2, 100, "cc\n", 3, 0)
	tail.Add("a line that is too long\n")
	read(3, 1, "a line that is too long\n", 4, 0)
	read(0, 100, "a line that is too long\n", 4, 3)
}
