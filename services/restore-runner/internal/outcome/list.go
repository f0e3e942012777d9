package outcome

import (
	"bufio"
	"cmp"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/holdfast-io/holdfast/pkg/json/rawjson"
)

// WriteResourceList writes <restore>-resource-list.json.gz's document (Velero 1.18): for each
// "<apiVersion>/<Kind>" the sorted "namespace/name(action)" of every object with an outcome.
func (f Files) WriteResourceList(w io.Writer) error {
	r := f.recorder
	r.mu.Lock()
	defer r.mu.Unlock()
	byKind := r.tally.groupByKind()
	out := bufio.NewWriter(w)
	separator := "{"
	for _, kind := range slices.Sorted(maps.Keys(byKind)) {
		line := append(rawjson.AppendQuoted([]byte(separator), kind), ":["...)
		for i, node := range byKind[kind] {
			if i > 0 {
				line = append(line[:0], ',')
			}
			line = rawjson.AppendQuoted(line, r.tally.nameOf(node)+"("+string(codes[r.tally.actions[node]])+")")
			if _, err := out.Write(line); err != nil {
				return err
			}
		}
		separator = "],"
	}
	end := "]}\n"
	if len(byKind) == 0 {
		end = "{}\n"
	}
	if _, err := out.WriteString(end); err != nil {
		return err
	}
	return out.Flush()
}

// nameOf is "namespace/name" in the cluster restored to, or the name alone, where actions may have moved it.
func (t *outcomeTally) nameOf(node int32) string {
	to, moved := t.moved[node]
	switch {
	case !moved:
		return nameOf(t.plan, node)
	case to.Namespace == "":
		return to.Name
	}
	return to.Namespace + "/" + to.Name
}

// groupByKind returns the objects with an outcome by "<apiVersion>/<Kind>", sorted by name.
func (t *outcomeTally) groupByKind() map[string][]int32 {
	byKind := map[string][]int32{}
	for i, action := range t.actions {
		if action != 0 {
			gvk := t.plan.Kind(int32(i)).GVK
			kind := gvk.GroupVersion().String() + "/" + gvk.Kind
			if to := t.moved[int32(i)]; to.Kind != "" {
				kind = to.APIVersion + "/" + to.Kind
			}
			byKind[kind] = append(byKind[kind], int32(i))
		}
	}
	for _, nodes := range byKind {
		slices.SortFunc(nodes, func(a, b int32) int {
			return cmp.Or(strings.Compare(t.nameOf(a), t.nameOf(b)), cmp.Compare(a, b))
		})
	}
	return byKind
}
