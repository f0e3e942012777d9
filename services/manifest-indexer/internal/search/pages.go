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

// findPage returns the page that an object belongs to. The first page of a kind begins before all objects.
func (r *recorder) findPage(kind int64, at place) (pageKey, error) {
	key := pageKey{kind: kind}
	s, err := r.prepare(`SELECT namespace, name FROM page WHERE kind = ? AND (namespace, name) <= (?, ?) ORDER BY namespace DESC, name DESC LIMIT 1`)
	if err == nil {
		err = s.QueryRowContext(r.ctx, kind, at.namespace, at.name).Scan(&key.namespace, &key.name)
	}
	if errors.Is(err, sql.ErrNoRows) {
		return key, nil // it is made with the kind's first object
	}
	return key, err
}

// writePage writes the names of a page anew; one that has grown too large becomes several.
func (r *recorder) writePage(key pageKey) error {
	end, err := r.findNext(key)
	for from := &key.place; from != nil && err == nil; {
		var names []place
		if names, err = r.listPlaces(key.kind, *from, end); err != nil {
			return err
		}
		n, next := len(names), (*place)(nil)
		if n > 2*r.paging.names {
			n, next = r.paging.names, &names[r.paging.names]
		}
		var body strings.Builder
		for _, p := range names[:n] {
			body.WriteString(p.name + "\n")
		}
		_, err = r.execute(`INSERT OR REPLACE INTO page (kind, namespace, name, body) VALUES (?, ?, ?, ?)`, key.kind, from.namespace, from.name, []byte(body.String()))
		from = next
	}
	return err
}

// findNext returns the place at which the next page begins, nil if there is none.
func (r *recorder) findNext(key pageKey) (*place, error) {
	s, err := r.prepare(`SELECT namespace, name FROM page WHERE kind = ? AND (namespace, name) > (?, ?) ORDER BY namespace, name LIMIT 1`)
	if err != nil {
		return nil, err
	}
	next := &place{}
	err = s.QueryRowContext(r.ctx, key.kind, key.namespace, key.name).Scan(&next.namespace, &next.name)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil //nolint:nilnil // it is the last page
	}
	return next, err
}

// listPlaces returns the first objects of a range, one more than a page may have.
func (r *recorder) listPlaces(kind int64, from place, end *place) (places []place, err error) {
	query, args := `SELECT namespace, name FROM object WHERE kind = ? AND (namespace, name) >= (?, ?)`, []any{kind, from.namespace, from.name}
	if end != nil {
		query, args = query+` AND (namespace, name) < (?, ?)`, append(args, end.namespace, end.name)
	}
	s, err := r.prepare(query + ` ORDER BY namespace, name LIMIT ?`)
	if err != nil {
		return nil, err
	}
	rows, err := s.QueryContext(r.ctx, append(args, 2*r.paging.names+1)...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // Err has what matters
	for rows.Next() {
		var p place
		if err := rows.Scan(&p.namespace, &p.name); err != nil {
			return nil, err
		}
		places = append(places, p)
	}
	return places, rows.Err()
}
