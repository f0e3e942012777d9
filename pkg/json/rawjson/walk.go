package rawjson

// Fields walks the fields of one object.
//
//	f := rawjson.ObjectFields(value)
//	for f.Next() { use(f.Key, f.Value) }
//	err := f.Err()
type Fields struct {
	// Key is the field's name without quotes and escapes, Value its JSON value without white space
	// around it. Both are slices of the text (a key with escapes is a copy).
	Key, Value []byte
	from       int
	walk
}

// Elements walks the elements of one array in the manner of Fields.
type Elements struct {
	// Value is the element's JSON value without white space around it, a slice of the text.
	Value []byte
	walk
}

type walk struct {
	b    []byte
	i    int
	err  error
	open bool
	done bool
}

// ObjectFields walks the object b. null has no fields; any other value is an error.
func ObjectFields(b []byte) Fields { return Fields{walk: beginWalk(b, '{')} }

// ArrayElements walks the array b. null has no elements; any other value is an error.
func ArrayElements(b []byte) Elements { return Elements{walk: beginWalk(b, '[')} }

func beginWalk(b []byte, bracket byte) walk {
	w := walk{b: b, i: SkipSpace(b, 0)}
	switch {
	case w.i < len(b) && b[w.i] == bracket:
		w.i++
	case IsNull(b[w.i:]):
		w.done = true
	default:
		w.failSyntax("object or array expected")
	}
	return w
}

// Err returns what ended the walk, nil at the end of the object or array.
func (w *walk) Err() error { return w.err }

func (w *walk) failSyntax(what string) bool {
	w.done = true
	if w.err == nil {
		w.err = syntaxError(what, w.i)
	}
	return false
}

// hasMore steps over a separator and reports whether another member follows.
func (w *walk) hasMore(bracket byte) bool {
	if w.done {
		return false
	}
	w.i = SkipSpace(w.b, w.i)
	if w.i >= len(w.b) {
		return w.failSyntax("not closed")
	}
	switch c := w.b[w.i]; {
	case c == bracket:
		w.i++
		w.done = true
		return false
	case !w.open:
		w.open = true
	case c == ',':
		w.i = SkipSpace(w.b, w.i+1)
	default:
		return w.failSyntax("comma expected")
	}
	return true
}

func (w *walk) nextValue() ([]byte, bool) {
	start := w.i
	end, err := SkipValue(w.b, start)
	if err != nil {
		w.err, w.done = err, true
		return nil, false
	}
	w.i = end
	return w.b[start:end], true
}

// Next goes to the next field.
func (f *Fields) Next() bool {
	if !f.hasMore('}') {
		return false
	}
	start := f.i
	f.from = start
	end, escaped, err := SkipString(f.b, start)
	if err != nil {
		f.err, f.done = err, true
		return false
	}
	if f.Key = f.b[start+1 : end-1]; escaped {
		if f.Key, err = AppendUnquoted(nil, f.b[start:end]); err != nil {
			f.err, f.done = err, true
			return false
		}
	}
	f.i = SkipSpace(f.b, end)
	if f.i >= len(f.b) || f.b[f.i] != ':' {
		return f.failSyntax("colon expected")
	}
	f.i = SkipSpace(f.b, f.i+1)
	var ok bool
	f.Value, ok = f.nextValue()
	return ok
}

// Span returns where the field begins and ends in the text, from the quote of its name to the end of
// its value.
func (f *Fields) Span() (from, to int) { return f.from, f.i }

// Next goes to the next element.
func (e *Elements) Next() bool {
	if !e.hasMore(']') {
		return false
	}
	var ok bool
	e.Value, ok = e.nextValue()
	return ok
}

// Lookup returns the value of the field at path inside the object b; nil when a step is missing,
// null or no object. Of equal keys the last one counts.
func Lookup(b []byte, path ...string) []byte {
	for _, key := range path {
		var found []byte
		f := ObjectFields(b)
		for f.Next() {
			if string(f.Key) == key {
				found = f.Value
			}
		}
		if f.Err() != nil || IsNull(found) {
			return nil
		}
		b = found
	}
	return b
}

// String returns the decoded string value, empty when it is none.
func String(value []byte) string {
	if len(value) < 2 || value[0] != '"' {
		return ""
	}
	s, err := AppendUnquoted(nil, value)
	if err != nil {
		return ""
	}
	return string(s)
}
