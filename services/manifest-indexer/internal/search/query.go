package search

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"slices"
	"sort"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
)

// BackupFilter selects backups; the zero value selects all.
type BackupFilter struct {
	Name, Schedule, Location string
	Since, Until             time.Time
}

func (f *BackupFilter) matchesBackup(b *Backup) bool {
	return (f.Name == "" || b.Name == f.Name) && (f.Schedule == "" || b.Schedule == f.Schedule) && (f.Location == "" || b.Location == f.Location) &&
		(f.Since.IsZero() || !b.Start.Before(f.Since)) && (f.Until.IsZero() || b.Start.Before(f.Until))
}

// Kind is a kind that objects of the index have.
type Kind struct {
	// Version is one that objects were stored in.
	Group, Version, Kind string
	// Resource is the plural name with the group.
	Resource string

	id int64
}

// Info returns the kind as manifests have it.
func (k *Kind) Info() manifest.KindInfo {
	return manifest.KindInfo{Kind: manifest.KindName(k.Group, k.Version, k.Kind), Resource: k.Resource, Preferred: true}
}

// Key names an object.
type Key struct{ Group, Kind, Namespace, Name string }

// Query selects objects.
type Query struct {
	// Name is a pattern of SQLite's GLOB; empty means all.
	Name string
	// Kinds of Database.ListKinds to look for.
	Kinds       []Kind
	Namespace   string // empty means all
	Labels      labels.Selector
	Annotations []string // keys
	Backups     BackupFilter
	// After skips the objects up to this one.
	After *Key
	Limit int
}

// Found is an object, and which of the selected backups hold it as the query wants it.
type Found struct {
	Kind            Kind
	Namespace, Name string
	Backups         int64
	Oldest, Newest  Backup
}

// Entry is a backup that holds an object, and the hash of its content there.
type Entry struct {
	Backup Backup
	Hash   []byte // nil where it is unknown
}

// holders are backups by lineage, each in the order of their numbers.
type holders map[int64][]Backup

func (d *Database) selectBackups(f *BackupFilter) holders {
	selected := holders{}
	for _, b := range d.Backups() {
		if f.matchesBackup(&b) {
			selected[b.lineage] = append(selected[b.lineage], b)
		}
	}
	return selected
}

// inRange returns the backups that hold a version.
func (h holders) inRange(lineage, first, last int64) []Backup {
	all := h[lineage]
	from := sort.Search(len(all), func(i int) bool { return all[i].seq >= first })
	to := sort.Search(len(all), func(i int) bool { return all[i].seq > last })
	return all[from:max(from, to)]
}

// compareStart orders backups by time, the same way at every replica.
func compareStart(a, b *Backup) int {
	return cmp.Or(a.Start.Compare(b.Start), strings.Compare(a.Location, b.Location), strings.Compare(a.Name, b.Name))
}

func (f *Found) addBackups(backups []Backup) {
	for i := range backups {
		b := &backups[i]
		if f.Backups == 0 || compareStart(b, &f.Oldest) < 0 {
			f.Oldest = *b
		}
		if f.Backups == 0 || compareStart(b, &f.Newest) > 0 {
			f.Newest = *b
		}
		f.Backups++
	}
}

// ListKinds returns the kinds of all objects, by group and kind.
func (d *Database) ListKinds(ctx context.Context) (kinds []Kind, err error) {
	err = d.eachRow(ctx, `SELECT id, grp, version, name, resource FROM kind ORDER BY grp, name`, nil, func(scan func(...any) error) (bool, error) {
		var k Kind
		err := scan(&k.id, &k.Group, &k.Version, &k.Kind, &k.Resource)
		kinds = append(kinds, k)
		return true, err
	})
	return kinds, err
}

// FindObjects returns the first objects that a query selects, by group, kind, namespace and name. Objects of which
// names alone are known match no selector, not even a negative one.
func (d *Database) FindObjects(ctx context.Context, q *Query) (found []Found, err error) {
	selected := d.selectBackups(&q.Backups)
	if q.hasTags() {
		maps.DeleteFunc(selected, func(_ int64, lineage []Backup) bool { return lineage[0].NamesOnly })
	}
	if len(selected) == 0 {
		return nil, nil
	}
	kinds := slices.SortedFunc(slices.Values(q.Kinds), compareKinds)
	for i := range kinds {
		after := &Key{}
		if q.After != nil {
			switch compareKinds(kinds[i], Kind{Group: q.After.Group, Kind: q.After.Kind}) {
			case -1:
				continue
			case 0:
				after = q.After
			}
		}
		if found, err = d.findOfKind(ctx, q, &kinds[i], after, selected, found); err != nil || len(found) == q.Limit {
			return found, err
		}
	}
	return found, nil
}

func compareKinds(a, b Kind) int {
	return cmp.Or(strings.Compare(a.Group, b.Group), strings.Compare(a.Kind, b.Kind))
}

// findOfKind appends the objects of one kind.
func (d *Database) findOfKind(ctx context.Context, q *Query, kind *Kind, after *Key, selected holders, found []Found) ([]Found, error) {
	text, next := nameLiteral(q.Name), &place{after.Namespace, after.Name}
	if text == "" || q.Namespace != "" {
		return d.findInSpan(ctx, q, kind, after, span{}, selected, found)
	}
	for next != nil {
		spans, more, err := d.listSpans(ctx, kind.id, *next, text)
		if err != nil {
			return nil, err
		}
		for _, s := range spans {
			if found, err = d.findInSpan(ctx, q, kind, after, s, selected, found); err != nil || len(found) == q.Limit {
				return found, err
			}
		}
		next = more
	}
	return found, nil
}

// findInSpan appends the objects of a range. The rows of an object are neighbours.
func (d *Database) findInSpan(ctx context.Context, q *Query, kind *Kind, after *Key, s span, selected holders, found []Found) ([]Found, error) {
	query, args := q.buildStatement(kind, after, s, selected)
	now := Found{Kind: *kind}
	err := d.eachRow(ctx, query, args, func(scan func(...any) error) (bool, error) {
		var namespace, name, tag string
		var lineage, first, last int64
		if err := scan(&namespace, &name, &lineage, &first, &last, &tag); err != nil {
			return false, err
		}
		if namespace != now.Namespace || name != now.Name {
			if now.Backups > 0 {
				found = append(found, now)
			}
			if now = (Found{Kind: *kind, Namespace: namespace, Name: name}); len(found) == q.Limit {
				return false, nil
			}
		}
		if backups := selected.inRange(lineage, first, last); len(backups) > 0 && q.matchesTag(tag) {
			now.addBackups(backups)
		}
		return true, nil
	})
	if now.Backups > 0 && len(found) < q.Limit {
		found = append(found, now)
	}
	return found, err
}

// buildStatement returns the statement that reads objects in the order of the index, each with its versions.
// Some of the objects may not match.
func (q *Query) buildStatement(kind *Kind, after *Key, s span, selected holders) (string, []any) {
	tag, join := `''`, ``
	if q.hasTags() {
		tag, join = `t.text`, ` CROSS JOIN tag t ON t.id = v.tag`
	}
	query := `SELECT o.namespace, o.name, v.lineage, v.first, v.last, ` + tag + ` FROM object o CROSS JOIN version v ON v.object = o.id` + join + ` WHERE o.kind = ?`
	args := []any{kind.id}
	if q.Namespace != "" {
		query, args = query+` AND o.namespace = ?`, append(args, q.Namespace)
	}
	if after.Name != "" {
		query, args = query+` AND (o.namespace, o.name) > (?, ?)`, append(args, after.Namespace, after.Name)
	}
	if s.from != (place{}) {
		query, args = query+` AND (o.namespace, o.name) >= (?, ?)`, append(args, s.from.namespace, s.from.name)
	}
	if s.to != nil {
		query, args = query+` AND (o.namespace, o.name) < (?, ?)`, append(args, s.to.namespace, s.to.name)
	}
	requirements, _ := q.Labels.Requirements()
	for _, r := range requirements {
		if values := r.ValuesUnsorted(); len(values) == 1 && slices.Contains([]selection.Operator{selection.Equals, selection.DoubleEquals, selection.In}, r.Operator()) {
			query, args = query+` AND v.tag IN (SELECT tag FROM label WHERE line = ?)`, append(args, r.Key()+"="+values[0])
		}
	}
	if len(selected) == 1 {
		for lineage, backups := range selected {
			query, args = query+` AND +v.lineage = ? AND +v.first <= ? AND +v.last >= ?`, append(args, lineage, backups[len(backups)-1].seq, backups[0].seq)
		}
	}
	if q.Name != "" {
		query, args = query+` AND o.name GLOB ?`, append(args, q.Name)
	}
	return query + ` ORDER BY o.namespace, o.name`, args
}

func (q *Query) hasTags() bool { return !q.Labels.Empty() || len(q.Annotations) > 0 }

// matchesTag reports whether a version has the labels and annotations that are asked for.
func (q *Query) matchesTag(text string) bool {
	if !q.hasTags() {
		return true
	}
	set, lines := labels.Set{}, strings.Split(text, "\n")
	for _, line := range lines {
		if key, value, ok := strings.Cut(line, "="); ok {
			set[key] = value
		}
	}
	return q.Labels.Matches(set) && !slices.ContainsFunc(q.Annotations, func(key string) bool { return !slices.Contains(lines, "@"+key) })
}

// ReadHistory returns the selected backups that hold an object, the newest first.
func (d *Database) ReadHistory(ctx context.Context, kind Kind, namespace, name string, f *BackupFilter) (entries []Entry, err error) {
	selected := d.selectBackups(f)
	const query = `SELECT v.lineage, v.first, v.last, v.hash FROM object o CROSS JOIN version v ON v.object = o.id WHERE o.kind = ? AND o.namespace = ? AND o.name = ?`
	err = d.eachRow(ctx, query, []any{kind.id, namespace, name}, func(scan func(...any) error) (bool, error) {
		var lineage, first, last int64
		var hash []byte
		err := scan(&lineage, &first, &last, &hash)
		for _, b := range selected.inRange(lineage, first, last) {
			entries = append(entries, Entry{Backup: b, Hash: hash})
		}
		return true, err
	})
	slices.SortFunc(entries, func(a, b Entry) int { return compareStart(&b.Backup, &a.Backup) })
	return entries, err
}

// IsSame reports whether two entries have the same content, and whether that is known.
func (e *Entry) IsSame(other *Entry) (same, known bool) {
	return bytes.Equal(e.Hash, other.Hash), e.Hash != nil && other.Hash != nil
}

// eachRow calls do for the rows of a query until it returns false.
func (d *Database) eachRow(ctx context.Context, query string, args []any, do func(scan func(...any) error) (bool, error)) error {
	return d.withFile(func() error {
		rows, err := d.db.QueryContext(ctx, query, args...)
		if err != nil {
			return err
		}
		defer func() { _ = rows.Close() }() // Err has what matters
		for rows.Next() {
			if more, err := do(rows.Scan); err != nil || !more {
				return err
			}
		}
		return rows.Err()
	})
}
