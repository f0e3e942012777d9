// Package jsonlimit decodes JSON of unknown origin within a limit on the memory that the result
// takes.
//
// A limit on the length of the text is not enough: "{}," is three bytes, and the value it becomes
// may take hundreds. So the values of a text are counted before it is decoded, and reckoned at what
// the largest of them would take in Go.
package jsonlimit

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// ErrLimit means that a text would take more memory than was allowed once it is decoded.
var ErrLimit = errors.New("too many values")

// Object is the limit for one Kubernetes object, in bytes: what the API server stores by default
// (1.5 MiB) passes, however many values it has.
const Object = 64 << 20

// Unmarshal is encoding/json's, unless the result could take more than limit bytes, which is
// ErrLimit.
func Unmarshal(text []byte, into any, limit int) error {
	if need := reckonIn(reflect.TypeOf(into), text, limit); need > limit {
		return limitError(text, need, limit)
	}
	return json.Unmarshal(text, into)
}

// UnmarshalObject decodes a Kubernetes object as the API server does: names of fields are matched
// exactly, and integers stay integers. One that would take more than Object bytes is ErrLimit.
func UnmarshalObject(text []byte) (map[string]any, error) {
	if len(text) > Object/generic.memoryPerByte() {
		if need := DecodedSize(text); need > Object {
			return nil, limitError(text, need, Object)
		}
	}
	var object map[string]any
	err := utiljson.Unmarshal(text, &object)
	return object, err
}

// DecodedSize returns the most that a text takes as UnmarshalObject decodes it, in bytes.
func DecodedSize(text []byte) int {
	n := countParts(text)
	return generic.memoryBound(&n, len(text))
}

// reckonIn returns the most that a text takes in a type, or some lower number over limit. Short
// texts are not looked at: that they pass is enough.
func reckonIn(t reflect.Type, text []byte, limit int) int {
	p := profileOf(t)
	if len(text) <= limit/p.memoryPerByte() {
		return len(text) * p.memoryPerByte()
	}
	n := countParts(text)
	if need := p.memoryBound(&n, len(text)); need <= limit {
		return need
	}
	e := exactSize{limit: limit}
	e.addValue(t, text)
	return e.total
}

func limitError(text []byte, need, limit int) error {
	return fmt.Errorf("%w: %d bytes of JSON could take %d bytes of memory, %d are allowed", ErrLimit, len(text), need, limit)
}
