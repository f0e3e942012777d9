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

// recorder adds one backup.
type recorder struct {
	ctx        context.Context
	tx         *sql.Tx
	statements map[string]*sql.Stmt
	kinds      map[string]int64
	tags       map[string]int64
	pages      map[pageKey]bool // that lack names
	paging     paging
	objects    int64
}

func (d *Database) newRecorder(ctx context.Context, tx *sql.Tx) *recorder {
	return &recorder{
		ctx: ctx, tx: tx, statements: map[string]*sql.Stmt{}, kinds: map[string]int64{}, tags: map[string]int64{}, pages: map[pageKey]bool{},
		paging: d.paging, objects: d.objects,
	}
}

// AddBackup adds a backup with its objects, or nothing if they cannot all be read. Of several objects with one
// group, kind, namespace and name the first counts. Its caller is the only writer.
func (d *Database) AddBackup(ctx context.Context, b Backup, objects iter.Seq2[Object, error]) error {
	return d.withFile(func() error {
		tx, err := d.db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // nothing after a commit
		r := d.newRecorder(ctx, tx)
		for o, err := range objects {
			if err == nil {
				err = r.stageObject(&o)
			}
			if err != nil {
				return err
			}
		}
		if err := r.recordBackup(&b); err != nil {
			return err
		}
		if err := tx.Commit(); err != nil {
			return err
		}
		d.objects = r.objects
		d.setBackups(append(slices.Clip(d.Backups()), b))
		return nil
	})
}

// execute runs a statement, which is prepared once.
func (r *recorder) execute(query string, args ...any) (sql.Result, error) {
	s, err := r.prepare(query)
	if err != nil {
		return nil, err
	}
	return s.ExecContext(r.ctx, args...)
}

func (r *recorder) prepare(query string) (s *sql.Stmt, err error) {
	if s = r.statements[query]; s == nil {
		if s, err = r.tx.PrepareContext(r.ctx, query); err == nil {
			r.statements[query] = s
		}
	}
	return s, err
}

// findID returns the number of a row, and sql.ErrNoRows where there is none.
func (r *recorder) findID(query string, args ...any) (id int64, err error) {
	s, err := r.prepare(query)
	if err == nil {
		err = s.QueryRowContext(r.ctx, args...).Scan(&id)
	}
	return id, err
}

func (r *recorder) stageObject(o *Object) error {
	kind, err := r.findKind(o)
	if err != nil {
		return err
	}
	tag, err := r.findTag(tagText(o))
	if err != nil {
		return err
	}
	id, err := r.findID(`SELECT id FROM object WHERE kind = ? AND namespace = ? AND name = ?`, kind, o.Namespace, o.Name)
	if errors.Is(err, sql.ErrNoRows) {
		id, err = r.addObject(kind, place{o.Namespace, o.Name})
	}
	if err != nil {
		return err
	}
	_, err = r.execute(`INSERT OR IGNORE INTO staged (object, hash, tag) VALUES (?, ?, ?)`, id, o.Hash, tag)
	return err
}

func (r *recorder) addObject(kind int64, at place) (id int64, err error) {
	page, err := r.findPage(kind, at)
	if err != nil {
		return 0, err
	}
	r.pages[page] = true
	r.objects++
	_, err = r.execute(`INSERT INTO object (kind, namespace, name, id) VALUES (?, ?, ?, ?)`, kind, at.namespace, at.name, r.objects)
	return r.objects, err
}

func (r *recorder) findKind(o *Object) (int64, error) {
	key := o.Group + "/" + o.Kind
	if id, ok := r.kinds[key]; ok {
		return id, nil
	}
	const insert = `INSERT INTO kind (grp, name, version, resource) VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET version = excluded.version, resource = excluded.resource WHERE NOT ?`
	if _, err := r.execute(insert, o.Group, o.Kind, o.Version, o.Resource, o.Guessed); err != nil {
		return 0, err
	}
	id, err := r.findID(`SELECT id FROM kind WHERE grp = ? AND name = ?`, o.Group, o.Kind)
	r.kinds[key] = id
	return id, err
}

func (r *recorder) findTag(text string) (int64, error) {
	if id, ok := r.tags[text]; ok {
		return id, nil
	}
	id, err := r.findID(`SELECT id FROM tag WHERE text = ?`, text)
	if errors.Is(err, sql.ErrNoRows) {
		id, err = r.addTag(text)
	}
	if len(r.tags) >= maxKnown {
		clear(r.tags)
	}
	r.tags[text] = id
	return id, err
}

// addTag adds a label set, and its lines for those who look for one.
func (r *recorder) addTag(text string) (id int64, err error) {
	added, err := r.execute(`INSERT INTO tag (text) VALUES (?)`, text)
	if err == nil {
		id, err = added.LastInsertId()
	}
	for _, line := range strings.Split(text, "\n") {
		if err == nil && line != "" {
			_, err = r.execute(`INSERT INTO label (line, tag) VALUES (?, ?)`, line, id)
		}
	}
	return id, err
}

// recordBackup adds the staged objects: the range of a version that goes on is left alone, that of one that the
// backup does not hold ends before it.
func (r *recorder) recordBackup(b *Backup) error {
	scope := fmt.Sprintf("%q %t %s", b.Location, b.NamesOnly, b.Scope)
	_, err := r.execute(`INSERT OR IGNORE INTO lineage (scope) VALUES (?)`, scope)
	if err == nil {
		b.lineage, err = r.findID(`SELECT id FROM lineage WHERE scope = ?`, scope)
	}
	if err != nil {
		return err
	}
	added, err := r.execute(`INSERT INTO backup (lineage, uid, name, location, schedule, start, names_only) VALUES (?, ?, ?, ?, ?, ?, ?)`,
		b.lineage, b.UID, b.Name, b.Location, b.Schedule, b.Start.UnixNano(), b.NamesOnly)
	if err == nil {
		b.seq, err = added.LastInsertId()
	}
	if err == nil {
		_, err = r.execute(`UPDATE version SET last = ? WHERE lineage = ? AND last = ?
			AND NOT EXISTS (SELECT 1 FROM staged s WHERE s.object = version.object AND s.hash IS version.hash AND s.tag = version.tag)`, b.seq-1, b.lineage, int64(openEnd))
	}
	if err == nil {
		_, err = r.execute(`INSERT INTO version (object, lineage, first, last, hash, tag) SELECT s.object, ?1, ?2, ?3, s.hash, s.tag FROM staged s
			WHERE NOT EXISTS (SELECT 1 FROM version v WHERE v.lineage = ?1 AND v.last = ?3 AND v.object = s.object)`, b.lineage, b.seq, int64(openEnd))
	}
	if err == nil {
		_, err = r.execute(`DELETE FROM staged`)
	}
	for page := range r.pages {
		if err == nil {
			err = r.writePage(page)
		}
	}
	return err
}

// ForgetBackup removes a backup and the versions that no other backup holds. Its caller is the only writer.
func (d *Database) ForgetBackup(ctx context.Context, uid string) error {
	backups := d.Backups()
	at := slices.IndexFunc(backups, func(b Backup) bool { return b.UID == uid })
	if at < 0 {
		return nil
	}
	b := backups[at]
	before, after := int64(0), int64(openEnd)
	for _, other := range backups {
		switch {
		case other.lineage != b.lineage || other.seq == b.seq:
		case other.seq < b.seq:
			before = other.seq
		case after == openEnd:
			after = other.seq
		}
	}
	return d.withFile(func() error {
		tx, err := d.db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // nothing after a commit
		last := after - 1
		if after == openEnd {
			last = openEnd
		}
		_, err = tx.ExecContext(ctx, `DELETE FROM version WHERE lineage = ? AND first > ? AND last BETWEEN ? AND ?`, b.lineage, before, b.seq, last)
		if err == nil {
			_, err = tx.ExecContext(ctx, `DELETE FROM backup WHERE seq = ?`, b.seq)
		}
		if err == nil {
			err = tx.Commit()
		}
		if err == nil {
			d.setBackups(slices.Concat(backups[:at], backups[at+1:]))
		}
		return err
	})
}

// Sweep removes what only forgotten backups held: names, label sets and lineages. It reads the whole database.
// Its caller is the only writer.
func (d *Database) Sweep(ctx context.Context) error {
	return d.withFile(func() error {
		tx, err := d.db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // nothing after a commit
		_, err = tx.ExecContext(ctx, `
DELETE FROM object WHERE NOT EXISTS (SELECT 1 FROM version v WHERE v.object = object.id);
DELETE FROM tag WHERE id NOT IN (SELECT tag FROM version);
DELETE FROM label WHERE tag NOT IN (SELECT id FROM tag);
DELETE FROM page;
DELETE FROM kind WHERE NOT EXISTS (SELECT 1 FROM object o WHERE o.kind = kind.id);
DELETE FROM lineage WHERE id NOT IN (SELECT lineage FROM backup);`)
		if err != nil {
			return err
		}
		r := d.newRecorder(ctx, tx)
		for kind := int64(0); err == nil; {
			if kind, err = r.findID(`SELECT id FROM kind WHERE id > ? ORDER BY id LIMIT 1`, kind); err == nil {
				err = r.writePage(pageKey{kind: kind})
			}
		}
		if errors.Is(err, sql.ErrNoRows) {
			err = tx.Commit()
		}
		return err
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
