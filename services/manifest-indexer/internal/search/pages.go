package search

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"strings"
)

// paging is how pages are written and read.
type paging struct {
	// names is how many names each of several pages that are written at once has; one may grow to twice as many.
	names int
	// run is how many pages with a text are found before their objects are looked at: the first are often enough.
	run int
}

var defaultPaging = paging{names: 256, run: 32}

// place is where an object stands among those of its kind.
type place struct{ namespace, name string }

// span is a range of objects of a kind, from a place, which belongs to it, to another one, which does not; to
// the end where that is nil.
type span struct {
	from place
	to   *place
}

// nameLiteral returns the longest text that each name contains that a pattern matches.
func nameLiteral(pattern string) (longest string) {
	for pattern != "" {
		end := strings.IndexAny(pattern, "*?[")
		if end < 0 {
			end = len(pattern)
		}
		if end > len(longest) {
			longest = pattern[:end]
		}
		pattern = pattern[end:]
		if strings.HasPrefix(pattern, "[") {
			pattern = pattern[strings.IndexByte(pattern, ']'):] // it is closed
		}
		pattern = pattern[min(1, len(pattern)):]
	}
	return longest
}

// listSpans returns where the objects of a kind are, from a place on, whose name may contain a text: some of
// them, and the place from which to look for more, nil where there is none.
func (d *Database) listSpans(ctx context.Context, kind int64, from place, text string) (spans []span, next *place, err error) {
	const query = `SELECT namespace, name, body FROM page WHERE kind = ?1 AND (namespace, name) >=
		(SELECT namespace, name FROM page WHERE kind = ?1 AND (namespace, name) <= (?2, ?3) ORDER BY namespace DESC, name DESC LIMIT 1) ORDER BY namespace, name`
	want, unclosed, run := []byte(text), false, 0
	err = d.eachRow(ctx, query, []any{kind, from.namespace, from.name}, func(scan func(...any) error) (bool, error) {
		var at place
		var body sql.RawBytes
		if err := scan(&at.namespace, &at.name, &body); err != nil {
			return false, err
		}
		matches := bytes.Contains(body, want)
		if run == d.paging.run {
			next, matches = &at, false
		}
		switch {
		case unclosed && !matches:
			spans[len(spans)-1].to, unclosed = &at, false
		case matches && !unclosed:
			spans, unclosed = append(spans, span{from: at}), true
		}
		if matches {
			run++
		}
		return next == nil, nil
	})
	return spans, next, err
}

// pageKey names a page by its first place.
type pageKey struct {
	kind int64
	place
}

// findPage returns the page that an object belongs to. The first page of a kind begins before all objects; it is
// made with the first of them.
func (r *recorder) findPage(kind int64, at place) pageKey {
	key := pageKey{kind: kind}
	r.readRow([]any{&key.namespace, &key.name}, `SELECT namespace, name FROM page WHERE kind = ? AND (namespace, name) <= (?, ?) ORDER BY namespace DESC, name DESC LIMIT 1`,
		kind, at.namespace, at.name)
	return key
}

// writePage writes the names of a page anew; one that has grown too large becomes several.
func (r *recorder) writePage(key pageKey) {
	end := &place{}
	if !r.readRow([]any{&end.namespace, &end.name}, `SELECT namespace, name FROM page WHERE kind = ? AND (namespace, name) > (?, ?) ORDER BY namespace, name LIMIT 1`,
		key.kind, key.namespace, key.name) {
		end = nil
	}
	for from := &key.place; from != nil && r.err == nil; {
		names := r.listPlaces(key.kind, *from, end)
		n, next := len(names), (*place)(nil)
		if n > 2*r.paging.names {
			n, next = r.paging.names, &names[r.paging.names]
		}
		var body strings.Builder
		for _, p := range names[:n] {
			body.WriteString(p.name + "\n")
		}
		r.execute(`INSERT OR REPLACE INTO page (kind, namespace, name, body) VALUES (?, ?, ?, ?)`, key.kind, from.namespace, from.name, []byte(body.String()))
		from = next
	}
}

// listPlaces returns the first objects of a range, one more than a page may have.
func (r *recorder) listPlaces(kind int64, from place, end *place) (places []place) {
	query, args := `SELECT namespace, name FROM object WHERE kind = ? AND (namespace, name) >= (?, ?)`, []any{kind, from.namespace, from.name}
	if end != nil {
		query, args = query+` AND (namespace, name) < (?, ?)`, append(args, end.namespace, end.name)
	}
	s := r.prepare(query + ` ORDER BY namespace, name LIMIT ?`)
	if r.err != nil {
		return nil
	}
	rows, err := s.QueryContext(r.ctx, append(args, 2*r.paging.names+1)...)
	if err != nil {
		r.err = err
		return nil
	}
	defer func() { _ = rows.Close() }() // Err has what matters
	for rows.Next() && r.err == nil {
		var p place
		r.err = rows.Scan(&p.namespace, &p.name)
		places = append(places, p)
	}
	r.err = errors.Join(r.err, rows.Err())
	return places
}
