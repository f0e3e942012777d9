package jsonlimit

import "github.com/holdfast-io/holdfast/pkg/json/rawjson"

// partCounts is what a text consists of.
type partCounts struct {
	objects  int
	filled   int // of the objects, those with members
	members  int
	spilled  int // of the members, those that do not fit into the first group of a map
	elements int // of arrays
}

// maxDepth is where decoders give up (encoding/json and its fork for Kubernetes).
const maxDepth = 10_000

// inArray marks an array among the open brackets.
const inArray = -1

// countParts counts the parts of a text in one pass, without building anything. Text that is not JSON is
// counted up to where it is not; no decoder gets further.
func countParts(text []byte) (n partCounts) {
	var open []int32 // for each open bracket the members so far, or inArray
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			end, _, err := rawjson.SkipString(text, i)
			if err != nil {
				return n
			}
			i = end - 1
		case '{', '[':
			if len(open) > maxDepth {
				return n
			}
			open = append(open, n.beginBracket(text, i))
		case '}', ']':
			if len(open) == 0 {
				return n
			}
			open = open[:len(open)-1]
		case ':':
			if len(open) == 0 || open[len(open)-1] == inArray {
				return n
			}
			n.countMember(&open[len(open)-1])
		case ',':
			if len(open) > 0 && open[len(open)-1] == inArray {
				n.elements++
			}
		}
	}
	return n
}

// beginBracket counts what begins with the bracket at text[i].
func (n *partCounts) beginBracket(text []byte, i int) int32 {
	next := rawjson.SkipSpace(text, i+1)
	empty := next < len(text) && (text[next] == '}' || text[next] == ']')
	if text[i] == '[' {
		if !empty {
			n.elements++ // the one without a comma before it
		}
		return inArray
	}
	n.objects++
	return 0
}

// countMember counts one more member of an object.
func (n *partCounts) countMember(of *int32) {
	n.members++
	switch *of++; {
	case *of == 1:
		n.filled++
	case *of > mapSlots:
		n.spilled++
	}
}
