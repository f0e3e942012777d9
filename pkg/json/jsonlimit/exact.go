package jsonlimit

import (
	"bytes"
	"reflect"
	"strings"
	"sync"

	"github.com/holdfast-io/holdfast/pkg/json/rawjson"
)

// exactSize reckons what a text takes in a type, field by field: for texts that would take too much
// were each of their values the largest there can be. It stops once it is over limit. Text that is
// not JSON takes nothing, since decoders look at the whole of it first.
type exactSize struct{ total, limit int }

// addValue adds what one value takes besides its place in what holds it.
func (e *exactSize) addValue(t reflect.Type, text []byte) {
	if e.total > e.limit {
		return
	}
	if pointer := reflect.PointerTo(t); pointer.Implements(decodesItself) || pointer.Implements(decodesText) {
		e.total += 2 * len(text)
		return
	}
	switch t.Kind() {
	case reflect.Pointer:
		if !rawjson.IsNull(text) {
			e.total += int(t.Elem().Size())
			e.addValue(t.Elem(), text)
		}
	case reflect.Struct:
		e.addFields(t, text)
	case reflect.Slice, reflect.Array:
		e.addElements(t.Elem(), text)
	case reflect.Map:
		e.addMembers(t, text)
	case reflect.Interface:
		n := countParts(text)
		e.total += generic.memoryBound(&n, len(text))
	case reflect.String:
		e.total += 2 * len(text)
	default:
	}
}

func (e *exactSize) addFields(t reflect.Type, text []byte) {
	if !beginsWith(text, '{') {
		return
	}
	known := fieldsOf(t)
	f := rawjson.ObjectFields(text)
	for e.total <= e.limit && f.Next() {
		if field, ok := known[string(bytes.ToLower(f.Key))]; ok {
			e.addValue(field, f.Value)
		}
	}
}

func (e *exactSize) addElements(t reflect.Type, text []byte) {
	if !beginsWith(text, '[') {
		e.total += 2 * len(text) // the base64 of bytes
		return
	}
	all := rawjson.ArrayElements(text)
	for e.total <= e.limit && all.Next() {
		e.total += growth * int(t.Size())
		e.addValue(t, all.Value)
	}
}

func (e *exactSize) addMembers(t reflect.Type, text []byte) {
	if !beginsWith(text, '{') {
		return
	}
	entry := int(t.Key().Size() + t.Elem().Size())
	e.total += mapHeader + mapGroup + mapSlots*entry
	f := rawjson.ObjectFields(text)
	for e.total <= e.limit && f.Next() {
		e.total += growth*entry + 2*len(f.Key)
		e.addValue(t.Elem(), f.Value)
	}
}

func beginsWith(text []byte, bracket byte) bool {
	i := rawjson.SkipSpace(text, 0)
	return i < len(text) && text[i] == bracket
}

var fieldTypes sync.Map // reflect.Type -> map[string]reflect.Type

// fieldsOf returns the types of the fields of a struct by their names in lower case.
func fieldsOf(t reflect.Type) map[string]reflect.Type {
	if known, ok := fieldTypes.Load(t); ok {
		return known.(map[string]reflect.Type) //nolint:forcetypeassert // nothing else is stored
	}
	known := map[string]reflect.Type{}
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name != "":
		case f.Anonymous:
			continue // its fields are among the visible ones
		default:
			name = f.Name
		}
		known[strings.ToLower(name)] = f.Type
	}
	fieldTypes.Store(t, known)
	return known
}
