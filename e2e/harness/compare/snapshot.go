package compare

import (
	"encoding/json"
	"strings"
)

// Key identifies an object: one API version of a group is as good as another.
type Key struct {
	Group, Kind, Namespace, Name string
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

// canonicalObject turns an object into one of JSON values alone, so that both sides of a comparison are alike.
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
