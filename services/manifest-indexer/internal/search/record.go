package search

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sort"
	"strings"

	"github.com/holdfast-io/holdfast/pkg/spec/selection"
)

// Object is an object of a backup that is added.
type Object struct {
	Group, Version, Kind string
	// Resource is its plural name with the group, such as "deployments.apps"; Guessed if it follows from the kind alone.
	Resource        string
	Guessed         bool
	Namespace, Name string
	// Hash is over its content; nil means unknown.
	Hash []byte
	// Labels, and the keys of annotations; not their values.
	Labels      map[string]string
	Annotations []string
}

// maxKnown bounds the label sets whose number is kept in memory while a backup is added.
const maxKnown = 10_000

// recorder writes in one transaction. After its first error it does nothing.
type recorder struct {
	ctx        context.Context
	tx         *sql.Tx
	err        error
	statements map[string]*sql.Stmt
	kinds      map[string]int64
	tags       map[string]int64
	pages      map[pageKey]bool // that lack names
	paging     paging
	objects    int64
}

// runTransaction commits what a function writes, unless the recorder has an error then. Its caller is the only writer.
func (d *Database) runTransaction(ctx context.Context, write func(*recorder)) error {
	return d.withFile(func() error {
		tx, err := d.db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // nothing after a commit
		r := &recorder{
			ctx: ctx, tx: tx, statements: map[string]*sql.Stmt{}, kinds: map[string]int64{}, tags: map[string]int64{}, pages: map[pageKey]bool{},
			paging: d.paging, objects: d.objects,
		}
		if write(r); r.err != nil {
			return r.err
		}
		err = tx.Commit()
		if err == nil {
			d.objects = r.objects
		}
		return err
	})
}

// prepare returns a statement, which is prepared once.
func (r *recorder) prepare(query string) *sql.Stmt {
	s := r.statements[query]
	if s == nil && r.err == nil {
		s, r.err = r.tx.PrepareContext(r.ctx, query)
		r.statements[query] = s
	}
	return s
}

// execute runs a statement and returns the number of the row that was added last.
func (r *recorder) execute(query string, args ...any) (id int64) {
	s := r.prepare(query)
	if r.err != nil {
		return 0
	}
	done, err := s.ExecContext(r.ctx, args...)
	if err == nil {
		id, err = done.LastInsertId()
	}
	r.err = err
	return id
}

// readRow reads the first row of a query, and reports whether there is one.
func (r *recorder) readRow(into []any, query string, args ...any) bool {
	s := r.prepare(query)
	if r.err != nil {
		return false
	}
	err := s.QueryRowContext(r.ctx, args...).Scan(into...)
	if !errors.Is(err, sql.ErrNoRows) {
		r.err = err
	}
	return err == nil
}

// AddBackup adds a backup with its objects, or nothing if they cannot all be read or written. Of several objects with
// one group, kind, namespace and name the first counts. What is never restored, such as Events, is left out. Its
// caller is the only writer.
func (d *Database) AddBackup(ctx context.Context, b Backup, objects iter.Seq2[Object, error]) error {
	err := d.runTransaction(ctx, func(r *recorder) {
		for o, err := range objects {
			if r.err = err; err == nil && !slices.Contains(selection.NonRestorable, o.Resource) {
				r.stageObject(&o)
			}
			if r.err != nil {
				return
			}
		}
		r.recordBackup(&b)
	})
	if err == nil {
		d.setBackups(append(slices.Clip(d.Backups()), b))
	}
	return err
}

func (r *recorder) stageObject(o *Object) {
	kind, tag, id := r.findKind(o), r.findTag(tagText(o)), int64(0)
	if !r.readRow([]any{&id}, `SELECT id FROM object WHERE kind = ? AND namespace = ? AND name = ?`, kind, o.Namespace, o.Name) {
		r.objects++
		id = r.objects
		r.pages[r.findPage(kind, place{o.Namespace, o.Name})] = true
		r.execute(`INSERT INTO object (kind, namespace, name, id) VALUES (?, ?, ?, ?)`, kind, o.Namespace, o.Name, id)
	}
	r.execute(`INSERT OR IGNORE INTO staged (object, hash, tag) VALUES (?, ?, ?)`, id, o.Hash, tag)
}

func (r *recorder) findKind(o *Object) (id int64) {
	key := o.Group + "/" + o.Kind
	if id, ok := r.kinds[key]; ok {
		return id
	}
	r.execute(`INSERT INTO kind (grp, name, version, resource) VALUES (?, ?, ?, ?)
		ON CONFLICT DO UPDATE SET version = excluded.version, resource = excluded.resource WHERE NOT ?`, o.Group, o.Kind, o.Version, o.Resource, o.Guessed)
	r.readRow([]any{&id}, `SELECT id FROM kind WHERE grp = ? AND name = ?`, o.Group, o.Kind)
	r.kinds[key] = id
	return id
}

// findTag returns the number of a label set. A new one is added, with its lines for those who look for one.
func (r *recorder) findTag(text string) (id int64) {
	if id, ok := r.tags[text]; ok {
		return id
	}
	if !r.readRow([]any{&id}, `SELECT id FROM tag WHERE text = ?`, text) {
		id = r.execute(`INSERT INTO tag (text) VALUES (?)`, text)
		for line := range strings.SplitSeq(text, "\n") {
			r.execute(`INSERT INTO label (line, tag) VALUES (?, ?)`, line, id)
		}
	}
	if len(r.tags) >= maxKnown {
		clear(r.tags)
	}
	r.tags[text] = id
	return id
}

// recordBackup adds the staged objects: the range of a version that goes on is left alone, that of one that the
// backup does not hold ends before it.
func (r *recorder) recordBackup(b *Backup) {
	scope := fmt.Sprintf("%q %t %s", b.Location, b.NamesOnly, b.Scope)
	r.execute(`INSERT OR IGNORE INTO lineage (scope) VALUES (?)`, scope)
	r.readRow([]any{&b.lineage}, `SELECT id FROM lineage WHERE scope = ?`, scope)
	b.seq = r.execute(`INSERT INTO backup (lineage) VALUES (?)`, b.lineage)
	r.execute(`UPDATE version SET last = ? WHERE lineage = ? AND last = ?
		AND NOT EXISTS (SELECT 1 FROM staged s WHERE s.object = version.object AND s.hash IS version.hash AND s.tag = version.tag)`, b.seq-1, b.lineage, int64(openEnd))
	r.execute(`INSERT INTO version (object, lineage, first, last, hash, tag) SELECT s.object, ?1, ?2, ?3, s.hash, s.tag FROM staged s
		WHERE NOT EXISTS (SELECT 1 FROM version v WHERE v.lineage = ?1 AND v.last = ?3 AND v.object = s.object)`, b.lineage, b.seq, int64(openEnd))
	r.execute(`DELETE FROM staged`)
	for page := range r.pages {
		r.writePage(page)
	}
}

// ForgetBackup removes a backup and the versions that no other backup holds. Its caller is the only writer.
func (d *Database) ForgetBackup(ctx context.Context, uid string) error {
	backups := d.Backups()
	at := slices.IndexFunc(backups, func(b Backup) bool { return b.UID == uid })
	if at < 0 {
		return nil
	}
	b, before, last := backups[at], int64(0), int64(openEnd)
	for _, other := range backups { // in the order of seq
		switch {
		case other.lineage != b.lineage || other.seq == b.seq:
		case other.seq < b.seq:
			before = other.seq
		default:
			last = min(last, other.seq-1)
		}
	}
	err := d.runTransaction(ctx, func(r *recorder) {
		r.execute(`DELETE FROM version WHERE lineage = ? AND first > ? AND last BETWEEN ? AND ?`, b.lineage, before, b.seq, last)
		r.execute(`DELETE FROM backup WHERE seq = ?`, b.seq)
	})
	if err == nil {
		d.setBackups(slices.Concat(backups[:at], backups[at+1:]))
	}
	return err
}

// Sweep removes what only forgotten backups held: names, label sets and lineages. It reads the whole database.
// Its caller is the only writer.
func (d *Database) Sweep(ctx context.Context) error {
	return d.runTransaction(ctx, func(r *recorder) {
		for _, query := range []string{
			`DELETE FROM object WHERE NOT EXISTS (SELECT 1 FROM version v WHERE v.object = object.id)`,
			`DELETE FROM tag WHERE id NOT IN (SELECT tag FROM version)`,
			`DELETE FROM label WHERE tag NOT IN (SELECT id FROM tag)`,
			`DELETE FROM kind WHERE NOT EXISTS (SELECT 1 FROM object o WHERE o.kind = kind.id)`,
			`DELETE FROM lineage WHERE id NOT IN (SELECT lineage FROM backup)`,
			`DELETE FROM page`,
		} {
			r.execute(query)
		}
		for kind := int64(0); r.readRow([]any{&kind}, `SELECT id FROM kind WHERE id > ? ORDER BY id LIMIT 1`, kind); {
			r.writePage(pageKey{kind: kind})
		}
	})
}

// tagText has the labels and the keys of annotations, a line for each: "key=value", or "@key".
func tagText(o *Object) string {
	lines := make([]string, 0, len(o.Labels)+len(o.Annotations))
	for _, key := range slices.Sorted(maps.Keys(o.Labels)) {
		lines = append(lines, key+"="+o.Labels[key])
	}
	at := len(lines)
	for _, key := range o.Annotations {
		lines = append(lines, "@"+key)
	}
	sort.Strings(lines[at:])
	return strings.Join(lines, "\n")
}
