package jsonlimit

import (
	"encoding"
	"encoding/json"
	"reflect"
	"sync"
)

// typeProfile is what the parts of a text may take in a type, in bytes.
type typeProfile struct {
	element int // the largest element of a slice
	entry   int // the largest key and value of a map
	target  int // the largest target of a pointer, or content of an interface
}

// What the runtime takes besides: the header of a map, the slots of its first group and what that
// group takes besides, and how much larger a slice or a table may be than its content while it
// grows.
const (
	mapHeader = 48
	mapSlots  = 8
	mapGroup  = 40
	growth    = 3
	// boxed is what an interface points to: the header of a slice, a string, a number.
	boxed = 24
)

// generic is the profile of map[string]any.
var generic = describeType(reflect.TypeFor[map[string]any]())

// memoryBound returns the most memory that a text of length bytes with these parts takes. Strings are
// rounded up to what the allocator gives.
func (p *typeProfile) memoryBound(n *partCounts, length int) int {
	total := 2*length + n.elements*(growth*p.element+p.target) + n.members*p.target
	if p.entry > 0 {
		total += n.objects*mapHeader + n.filled*(mapGroup+mapSlots*p.entry) + n.spilled*growth*p.entry
	}
	return total
}

// memoryPerByte returns the most memory that one byte of text takes: with what separates them an element
// takes two bytes at least, an object three, a member five, an object with a member six.
func (p *typeProfile) memoryPerByte() int {
	return 3 + (growth*p.element+p.target)/2 + mapHeader/3 + (p.target+growth*p.entry)/5 + (mapGroup+mapSlots*p.entry)/6 + 5
}

var profiles sync.Map // reflect.Type -> *profile

// profileOf returns the profile of a type.
func profileOf(t reflect.Type) *typeProfile {
	if p, ok := profiles.Load(t); ok {
		return p.(*typeProfile) //nolint:forcetypeassert // nothing else is stored
	}
	p := describeType(t)
	profiles.Store(t, p)
	return p
}

func describeType(t reflect.Type) *typeProfile {
	p := &typeProfile{}
	p.visitType(t, map[reflect.Type]bool{})
	return p
}

var (
	decodesItself = reflect.TypeFor[json.Unmarshaler]()
	decodesText   = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// visitType takes in everything that a value of a type may hold.
func (p *typeProfile) visitType(t reflect.Type, seen map[reflect.Type]bool) {
	if seen[t] {
		return
	}
	seen[t] = true
	if pointer := reflect.PointerTo(t); pointer.Implements(decodesItself) || pointer.Implements(decodesText) {
		return // a number, a time or the text itself
	}
	switch t.Kind() {
	case reflect.Pointer:
		p.target = max(p.target, int(t.Elem().Size()))
		p.visitType(t.Elem(), seen)
	case reflect.Slice, reflect.Array:
		p.element = max(p.element, int(t.Elem().Size()))
		p.visitType(t.Elem(), seen)
	case reflect.Map:
		p.entry = max(p.entry, int(t.Key().Size()+t.Elem().Size()))
		p.visitType(t.Elem(), seen)
	case reflect.Interface:
		p.target = max(p.target, boxed)
		p.visitType(reflect.TypeFor[[]any](), seen)
		p.visitType(reflect.TypeFor[map[string]any](), seen)
	case reflect.Struct:
		for i := range t.NumField() {
			p.visitType(t.Field(i).Type, seen)
		}
	default:
	}
}
