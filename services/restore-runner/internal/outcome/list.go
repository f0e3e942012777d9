package outcome

import (
	"bufio"
	"bytes"
	"errors"
	"io"

	"github.com/holdfast-io/holdfast/pkg/extsort"
	"github.com/holdfast-io/holdfast/pkg/json/rawjson"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
)

// WriteResourceList writes <restore>-resource-list.json.gz's document (Velero 1.18): for each
// "<apiVersion>/<Kind>" the sorted "namespace/name(action)" of every object with an outcome. The
// names are sorted in the work directory.
func (f Files) WriteResourceList(w io.Writer) (err error) {
	r := f.recorder
	r.mu.Lock()
	defer r.mu.Unlock()
	sorted, err := r.tally.sorted(r.dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sorted.Close()) }()
	list := listWriter{out: bufio.NewWriter(w)}
	for {
		key, action, err := sorted.Next()
		if errors.Is(err, io.EOF) {
			return errors.Join(list.end(), r.plan.Err())
		}
		if err == nil {
			err = list.add(key, codes[action[0]])
		}
		if err != nil {
			return err
		}
	}
}

// sorted returns the objects with an outcome by kind and name, and the code of each outcome. They
// are sorted in dir.
func (t *tally) sorted(dir string) (extsort.Stream, error) {
	sorter := extsort.New(extsort.Config{Dir: dir})
	var key []byte
	for i, action := range t.actions {
		if action == 0 {
			continue
		}
		node := int32(i)
		key = append(key[:0], t.plan.Kind(node).GVK.GroupVersion().String()+"/"+t.plan.Kind(node).GVK.Kind...)
		key = append(append(key, 0), nameOf(t.plan, node)...)
		if err := sorter.Add(key, []byte{byte(action)}); err != nil {
			return nil, errors.Join(err, sorter.Close())
		}
	}
	return sorter.Sort()
}

// listWriter writes {"v1/Pod":["ns/name(created)",...]} from keys in order.
type listWriter struct {
	out  *bufio.Writer
	kind []byte
	any  bool
}

func (l *listWriter) add(key []byte, action apply.Action) error {
	kind, name, _ := bytes.Cut(key, []byte{0})
	text := []byte(",")
	if !l.any || !bytes.Equal(kind, l.kind) {
		text = append(text[:0], "],"...)
		if !l.any {
			text = append(text[:0], '{')
		}
		text = append(rawjson.AppendQuoted(text, string(kind)), ":["...)
		l.any, l.kind = true, append(l.kind[:0], kind...)
	}
	_, err := l.out.Write(rawjson.AppendQuoted(text, string(name)+"("+string(action)+")"))
	return err
}

func (l *listWriter) end() error {
	end := "]}\n"
	if !l.any {
		end = "{}\n"
	}
	if _, err := l.out.WriteString(end); err != nil {
		return err
	}
	return l.out.Flush()
}
