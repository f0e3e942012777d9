// Package jsonlimit decodes JSON of unknown origin within a limit on the memory that the result
// takes.
//
// A limit on the length of the text is not enough: "{}," is three bytes, and the value it becomes
// may take hundreds. So the values of a text are counted before it is decoded, and each counts with a
// size that few values exceed.
package jsonlimit

import (
	"encoding/json"
	"errors"
	"fmt"

	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// ErrLimit means that a text would take more memory than was allowed once it is decoded.
var ErrLimit = errors.New("too many values")

// Object is the limit for one Kubernetes object, in bytes: what the API server stores by default
// (1.5 MiB) passes, however many values it has.
const Object = 64 << 20

// What a decoded text takes, in bytes: a map with its first group of members, a member beyond that
// group, and one within; an element of an array of any values; a struct, or an element of an array in
// a typed value.
const (
	filledMap     = 48 + 40 + mapSlots*32
	emptyMap      = 48
	spilledMember = 3 * 32
	member        = 24
	element       = 3*16 + 24
	typedElement  = 128
	// perByte is what a byte of text takes at the most.
	perByte = 136
)

// mapSlots is how many members the first group of a map has.
const mapSlots = 8

// Unmarshal is encoding/json's, unless the result could take more than limit bytes, which is
// ErrLimit. It may be that much more as an element is larger than 128 bytes.
func Unmarshal(text []byte, into any, limit int) error {
	if need := typedSize(text, limit); need > limit {
		return limitError(text, need, limit)
	}
	return json.Unmarshal(text, into)
}

// typedSize returns what a text takes in a struct. Short texts are not looked at: that they pass is
// enough.
func typedSize(text []byte, limit int) int {
	if len(text) <= limit/perByte {
		return 2 * len(text)
	}
	n := countParts(text)
	return 2*len(text) + typedElement*(n.objects+n.elements)
}

// UnmarshalObject decodes a Kubernetes object as the API server does: names of fields are matched
// exactly, and integers stay integers. One that would take more than Object bytes is ErrLimit.
func UnmarshalObject(text []byte) (map[string]any, error) {
	if len(text) > Object/perByte {
		if need := DecodedSize(text); need > Object {
			return nil, limitError(text, need, Object)
		}
	}
	var object map[string]any
	err := utiljson.Unmarshal(text, &object)
	return object, err
}

// DecodedSize returns the most that a text takes as UnmarshalObject decodes it, in bytes. Strings are
// rounded up to what the allocator gives.
func DecodedSize(text []byte) int {
	n := countParts(text)
	return 2*len(text) + n.elements*element + n.members*member + n.objects*emptyMap + n.filled*(filledMap-emptyMap) + n.spilled*spilledMember
}

func limitError(text []byte, need, limit int) error {
	return fmt.Errorf("%w: %d bytes of JSON could take %d bytes of memory, %d are allowed", ErrLimit, len(text), need, limit)
}
