package objmeta

import (
	"fmt"
	"unicode/utf8"
	"unsafe"

	"github.com/holdfast-io/holdfast/pkg/json/rawjson"
)

// Decode reads the JSON value of an object's "metadata" into m, replacing all of it; nil and null
// are empty metadata. All strings come out of one allocation. Of equal fields the last one counts.
// Errors wrap ErrInvalid and name the field; m is then undefined.
func Decode(raw []byte, m *Meta) error {
	m.reset()
	if len(raw) == 0 {
		return nil
	}
	var found fieldValues
	size := 0
	f := rawjson.ObjectFields(raw)
	for f.Next() {
		if at := fieldIndex(f.Key); at >= 0 {
			size += len(f.Value) - len(found[at])
			found[at] = f.Value
		}
	}
	if err := f.Err(); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	d := decoder{text: make([]byte, 0, size)} // what is decoded is never longer than its JSON, bar invalid UTF-8
	return d.decodeAll(&found, m)
}

func (m *Meta) reset() {
	*m = Meta{Labels: m.Labels[:0], Annotations: m.Annotations[:0], Owners: m.Owners[:0], Finalizers: m.Finalizers[:0]}
}

// The fields decoded.
const (
	fieldName = iota
	fieldNamespace
	fieldUID
	fieldResourceVersion
	fieldCreationTimestamp
	fieldDeletionTimestamp
	fieldLabels
	fieldAnnotations
	fieldOwnerReferences
	fieldFinalizers
	fieldCount
)

var fieldNames = [fieldCount]string{
	"name", "namespace", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "labels", "annotations", "ownerReferences", "finalizers",
}

type fieldValues [fieldCount][]byte

func fieldIndex(key []byte) int {
	switch string(key) {
	case "name":
		return fieldName
	case "namespace":
		return fieldNamespace
	case "uid":
		return fieldUID
	case "resourceVersion":
		return fieldResourceVersion
	case "creationTimestamp":
		return fieldCreationTimestamp
	case "deletionTimestamp":
		return fieldDeletionTimestamp
	case "labels":
		return fieldLabels
	case "annotations":
		return fieldAnnotations
	case "ownerReferences":
		return fieldOwnerReferences
	case "finalizers":
		return fieldFinalizers
	}
	return -1
}

// decoder collects all strings of one object in one piece of memory.
type decoder struct{ text []byte }

func (d *decoder) decodeAll(v *fieldValues, m *Meta) error {
	for at, into := range [...]*string{&m.Name, &m.Namespace, &m.UID, &m.ResourceVersion, &m.CreationTimestamp, &m.DeletionTimestamp} {
		if err := d.decodeOptional(v[at], into); err != nil {
			return invalidFieldError(fieldNames[at], err)
		}
	}
	if err := d.decodePairs(v[fieldLabels], &m.Labels); err != nil {
		return invalidFieldError("labels", err)
	}
	if err := d.decodePairs(v[fieldAnnotations], &m.Annotations); err != nil {
		return invalidFieldError("annotations", err)
	}
	if err := d.decodeOwners(v[fieldOwnerReferences], &m.Owners); err != nil {
		return invalidFieldError("ownerReferences", err)
	}
	if err := d.decodeStrings(v[fieldFinalizers], &m.Finalizers); err != nil {
		return invalidFieldError("finalizers", err)
	}
	return nil
}

func invalidFieldError(field string, err error) error {
	return fmt.Errorf("%w: metadata.%s: %w", ErrInvalid, field, err)
}

// decodeString decodes a JSON string into the shared text.
func (d *decoder) decodeString(quoted []byte) (string, error) {
	from := len(d.text)
	text, err := rawjson.AppendUnquoted(d.text, quoted)
	if err != nil {
		return "", err
	}
	return d.takeText(text, from), nil
}

// takeText makes a string of what text has behind from. As in strings.Builder, the bytes are never
// written again: the text only grows, and what outgrows it lies in memory of its own.
func (d *decoder) takeText(text []byte, from int) string {
	if cap(text) == cap(d.text) {
		d.text = text
	}
	return unsafe.String(unsafe.SliceData(text[from:]), len(text)-from)
}

func (d *decoder) decodeOptional(v []byte, into *string) error {
	*into = "" // also of an equal field before
	if v == nil || rawjson.IsNull(v) {
		return nil
	}
	var err error
	*into, err = d.decodeString(v)
	return err
}

// maxEntries bounds the labels, annotations, owners and finalizers of an object, each: an API
// server stores far fewer, and an empty one takes thirty times its JSON in memory.
const maxEntries = 50_000

var errTooMany = fmt.Errorf("more than %d entries", maxEntries)

func (d *decoder) decodePairs(v []byte, into *Pairs) error {
	if v == nil {
		return nil
	}
	f := rawjson.ObjectFields(v)
	for f.Next() {
		if !utf8.Valid(f.Key) {
			f.Key = []byte(string([]rune(string(f.Key)))) // U+FFFD for each invalid byte, as in values
		}
		key := d.takeText(append(d.text, f.Key...), len(d.text))
		var value string
		if err := d.decodeOptional(f.Value, &value); err != nil {
			return fmt.Errorf("%q: %w", key, err)
		}
		if len(*into) == maxEntries {
			return errTooMany
		}
		*into = append(*into, Pair{Key: key, Value: value})
	}
	return f.Err()
}

func (d *decoder) decodeStrings(v []byte, into *[]string) error {
	if v == nil {
		return nil
	}
	e := rawjson.ArrayElements(v)
	for e.Next() {
		s, err := d.decodeString(e.Value)
		if err != nil {
			return err
		}
		if len(*into) == maxEntries {
			return errTooMany
		}
		*into = append(*into, s)
	}
	return e.Err()
}

func (d *decoder) decodeOwners(v []byte, into *[]Owner) error {
	if v == nil {
		return nil
	}
	e := rawjson.ArrayElements(v)
	for e.Next() {
		var o Owner
		if err := d.decodeOwner(e.Value, &o); err != nil {
			return err
		}
		if len(*into) == maxEntries {
			return errTooMany
		}
		*into = append(*into, o)
	}
	return e.Err()
}

func (d *decoder) decodeOwner(v []byte, o *Owner) error {
	f := rawjson.ObjectFields(v)
	for f.Next() {
		var err error
		switch string(f.Key) {
		case "apiVersion":
			err = d.decodeOptional(f.Value, &o.APIVersion)
		case "kind":
			err = d.decodeOptional(f.Value, &o.Kind)
		case "name":
			err = d.decodeOptional(f.Value, &o.Name)
		case "uid":
			err = d.decodeOptional(f.Value, &o.UID)
		case "controller":
			o.Controller = string(f.Value) == "true"
		case "blockOwnerDeletion":
			o.BlockOwnerDeletion = string(f.Value) == "true"
		}
		if err != nil {
			return fmt.Errorf("%s: %w", f.Key, err)
		}
	}
	return f.Err()
}
