package outcome

import (
	"bufio"
	"cmp"
	"encoding/json"
	"io"
	"slices"
	"strings"
)

// WriteResourceList writes <restore>-resource-list.json.gz's document (Velero 1.18): for each "<apiVersion>/<Kind>" the
// sorted "namespace/name(action)" of every object with an outcome. It is written kind by kind.
func (r *Recorder) WriteResourceList(w io.Writer) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := bufio.NewWriter(w)
	separator := "{"
	for _, kind := range r.byKind() {
		key, err := json.Marshal(kind.key)
		if err != nil {
			return err
		}
		if _, err := out.WriteString(separator + string(key) + ":["); err != nil {
			return err
		}
		if err := r.writeNames(out, kind.nodes); err != nil {
			return err
		}
		separator = "],"
	}
	end := map[string]string{"{": "{}\n", "],": "]}\n"}[separator]
	if _, err := out.WriteString(end); err != nil {
		return err
	}
	return out.Flush()
}

// kindNodes are the touched objects of one kind, by their name in the list.
type kindNodes struct {
	key   string
	nodes []int32
}

func (r *Recorder) byKind() []kindNodes {
	place := map[string]int{}
	var kinds []kindNodes
	for i, action := range r.actions {
		if action == 0 {
			continue
		}
		node := int32(i)
		key := apiVersionKind(r.plan.Kind(node).GVK.GroupVersion().String(), r.plan.Kind(node).GVK.Kind)
		k, ok := place[key]
		if !ok {
			k = len(kinds)
			place[key] = k
			kinds = append(kinds, kindNodes{key: key})
		}
		kinds[k].nodes = append(kinds[k].nodes, node)
	}
	slices.SortFunc(kinds, func(a, b kindNodes) int { return cmp.Compare(a.key, b.key) })
	for _, k := range kinds {
		slices.SortFunc(k.nodes, func(a, b int32) int { return strings.Compare(r.name(a), r.name(b)) })
	}
	return kinds
}

func apiVersionKind(apiVersion, kind string) string { return apiVersion + "/" + kind }

func (r *Recorder) writeNames(out *bufio.Writer, nodes []int32) error {
	for i, node := range nodes {
		if i > 0 {
			if err := out.WriteByte(','); err != nil {
				return err
			}
		}
		entry, err := json.Marshal(r.name(node) + "(" + string(codes[r.actions[node]]) + ")")
		if err != nil {
			return err
		}
		if _, err := out.Write(entry); err != nil {
			return err
		}
	}
	return nil
}
