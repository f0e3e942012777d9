package compare

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// Key identifies an object: one API version of a group is as good as another.
type Key struct {
	Group     string `json:"group,omitempty"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// String renders the key for people.
func (k Key) String() string {
	kind := k.Kind
	if k.Group != "" {
		kind += "." + k.Group
	}
	if k.Namespace == "" {
		return kind + " " + k.Name
	}
	return kind + " " + k.Namespace + "/" + k.Name
}

func compareKeys(a, b Key) int {
	return strings.Compare(a.Group+"\x00"+a.Kind+"\x00"+a.Namespace+"\x00"+a.Name, b.Group+"\x00"+b.Kind+"\x00"+b.Namespace+"\x00"+b.Name)
}

// Snapshot is the state of a set of objects at one moment, without the ignored fields.
type Snapshot struct {
	Objects  map[Key]map[string]any
	Excluded map[string]int // objects that controllers make, by kind: read and counted, not kept
}

// ExcludedCount returns how many objects were left out, and which percentage of all objects read
// that is.
func (s *Snapshot) ExcludedCount() (count int, percent float64) {
	for _, n := range s.Excluded {
		count += n
	}
	if all := count + len(s.Objects); all > 0 {
		percent = 100 * float64(count) / float64(all)
	}
	return count, percent
}

// snapshotHeader is the first line of a snapshot file, the objects follow, one on each line.
type snapshotHeader struct {
	Format   string         `json:"format"`
	Objects  int            `json:"objects"`
	Excluded map[string]int `json:"excluded"`
}

type snapshotLine struct {
	Key    Key            `json:"key"`
	Object map[string]any `json:"object"`
}

const format = "holdfast-compare/1"

// Write writes the snapshot as gzip-compressed JSON lines. The file holds Secrets: keep it private.
func (s *Snapshot) Write(w io.Writer) error {
	compressed := gzip.NewWriter(w)
	encoder := json.NewEncoder(compressed)
	if err := encoder.Encode(snapshotHeader{Format: format, Objects: len(s.Objects), Excluded: s.Excluded}); err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	for _, key := range slices.SortedFunc(maps.Keys(s.Objects), compareKeys) {
		if err := encoder.Encode(snapshotLine{Key: key, Object: s.Objects[key]}); err != nil {
			return fmt.Errorf("write snapshot: %w", err)
		}
	}
	if err := compressed.Close(); err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	return nil
}

// Read reads what Write wrote; a truncated or foreign file is an error.
func Read(r io.Reader) (*Snapshot, error) {
	compressed, err := gzip.NewReader(bufio.NewReader(r))
	if err != nil {
		return nil, fmt.Errorf("read snapshot: %w", err)
	}
	decoder := json.NewDecoder(compressed)
	decoder.UseNumber() // integers beyond 2^53 stay exact
	var head snapshotHeader
	if err := decoder.Decode(&head); err != nil {
		return nil, fmt.Errorf("read snapshot: %w", err)
	}
	if head.Format != format {
		return nil, fmt.Errorf("read snapshot: format %q is not %q", head.Format, format)
	}
	s := &Snapshot{Objects: make(map[Key]map[string]any), Excluded: head.Excluded}
	for {
		var next snapshotLine
		if err := decoder.Decode(&next); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("read snapshot: %w", err)
		}
		s.Objects[next.Key] = next.Object
	}
	if len(s.Objects) != head.Objects {
		return nil, fmt.Errorf("read snapshot: %d objects instead of %d", len(s.Objects), head.Objects)
	}
	return s, nil
}

// canonicalObject turns an object into the form that reading a snapshot file yields, so that both sides
// of a comparison are alike.
func canonicalObject(object map[string]any) (map[string]any, error) {
	data, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(strings.NewReader(string(data)))
	decoder.UseNumber()
	var again map[string]any
	err = decoder.Decode(&again)
	return again, err
}
