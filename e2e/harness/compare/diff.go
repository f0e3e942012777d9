package compare

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
)

// Difference is one object that is in both snapshots and not equal. Paths names the fields; values
// are not shown, they may be secret.
type Difference struct {
	Key   Key
	Paths []string
}

// Report is the outcome of a comparison. All lists are sorted.
type Report struct {
	Equal     int
	Owned     int   // of the equal ones, those with owner references
	Missing   []Key // before, not after
	Extra     []Key // after, not before
	Different []Difference
}

// Same reports whether nothing differs.
func (r Report) Same() bool { return len(r.Missing)+len(r.Extra)+len(r.Different) == 0 }

// String lists what differs, at most 20 entries of each sort.
func (r Report) String() string {
	var text strings.Builder
	list := func(title string, lines []string) {
		for i, entry := range lines {
			if i == 20 {
				_, _ = fmt.Fprintf(&text, "%s: and %d more\n", title, len(lines)-i)
				return
			}
			_, _ = fmt.Fprintf(&text, "%s: %s\n", title, entry)
		}
	}
	list("missing", renderItems(r.Missing, Key.String))
	list("extra", renderItems(r.Extra, Key.String))
	list("different", renderItems(r.Different, func(d Difference) string { return d.Key.String() + ": " + strings.Join(d.Paths, ", ") }))
	return text.String()
}

func renderItems[T any](items []T, text func(T) string) []string {
	lines := make([]string, 0, len(items))
	for _, item := range items {
		lines = append(lines, text(item))
	}
	return lines
}

// Diff compares two snapshots.
func Diff(before, after *Snapshot) Report {
	var report Report
	for _, key := range slices.SortedFunc(maps.Keys(before.Objects), compareKeys) {
		old := before.Objects[key]
		current, found := after.Objects[key]
		if !found {
			report.Missing = append(report.Missing, key)
			continue
		}
		if paths := differentPaths(old, current); len(paths) > 0 {
			report.Different = append(report.Different, Difference{Key: key, Paths: paths})
			continue
		}
		report.Equal++
		if metadata, ok := old["metadata"].(map[string]any); ok && metadata["ownerReferences"] != nil {
			report.Owned++
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(after.Objects), compareKeys) {
		if _, found := before.Objects[key]; !found {
			report.Extra = append(report.Extra, key)
		}
	}
	return report
}

// DiffLive compares a snapshot with live objects. Controllers need a moment to adopt what was
// restored: it reads again until nothing differs or the time is up, and returns the last comparison
// and the last snapshot.
func DiffLive(ctx context.Context, config *rest.Config, scope Scope, before *Snapshot, patience time.Duration) (Report, *Snapshot, error) {
	var report Report
	var after *Snapshot
	err := wait.PollUntilContextTimeout(ctx, 300*time.Millisecond, max(patience, time.Millisecond), true, func(context.Context) (bool, error) {
		var err error
		if after, err = Take(ctx, config, scope); err != nil {
			return false, err
		}
		report = Diff(before, after)
		return report.Same(), nil
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		err = nil // the time is up: the last report has the differences
	}
	return report, after, err
}

// differentPaths returns the paths at which two JSON values differ.
func differentPaths(a, b any) []string {
	var paths []string
	walkDifferences("", a, b, &paths)
	slices.Sort(paths)
	return paths
}

func walkDifferences(path string, a, b any, paths *[]string) {
	switch left := a.(type) {
	case map[string]any:
		right, ok := b.(map[string]any)
		if !ok {
			break
		}
		for key, value := range left {
			other, found := right[key]
			if !found {
				*paths = append(*paths, path+"."+key)
				continue
			}
			walkDifferences(path+"."+key, value, other, paths)
		}
		for key := range right {
			if _, found := left[key]; !found {
				*paths = append(*paths, path+"."+key)
			}
		}
		return
	case []any:
		right, ok := b.([]any)
		if !ok || len(left) != len(right) {
			break
		}
		for i := range left {
			walkDifferences(path+"["+strconv.Itoa(i)+"]", left[i], right[i], paths)
		}
		return
	}
	if !reflect.DeepEqual(a, b) {
		*paths = append(*paths, path)
	}
}
