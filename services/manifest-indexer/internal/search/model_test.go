package search

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func openTestDatabase(t *testing.T) *Database {
	t.Helper()
	d, err := OpenDatabase(t.Context(), filepath.Join(t.TempDir(), "search.db"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

func yieldObjects(objects ...Object) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		for _, o := range objects {
			if !yield(o, nil) {
				return
			}
		}
	}
}

// model is the same as a map of backups to their objects.
type model struct {
	backups []Backup
	objects map[string][]Object // by UID
}

func (m *model) add(b Backup, objects []Object) {
	m.backups = append(m.backups, b)
	m.objects[b.UID] = objects
}

func (m *model) forget(uid string) {
	m.backups = slices.DeleteFunc(m.backups, func(b Backup) bool { return b.UID == uid })
}

func describeKey(group, kind, ns, name string) string {
	return group + "/" + kind + " " + ns + "/" + name
}

// find answers a query by looking at everything: "key: number oldest newest".
func (m *model) find(q *Query) (lines []string) {
	type hit struct {
		object  Object
		backups []Backup
	}
	hits := map[string]*hit{}
	for _, b := range m.backups {
		if !q.Backups.matchesBackup(&b) {
			continue
		}
		for _, o := range m.objects[b.UID] {
			named, _ := path.Match(cmp.Or(q.Name, "*"), o.Name)
			tagged := q.Labels.Matches(labels.Set(o.Labels)) && (!b.NamesOnly || !q.hasTags())
			for _, key := range q.Annotations {
				tagged = tagged && slices.Contains(o.Annotations, key)
			}
			of := slices.ContainsFunc(q.Kinds, func(k Kind) bool { return k.Group == o.Group && k.Kind == o.Kind })
			if !named || !tagged || !of || q.Namespace != "" && q.Namespace != o.Namespace {
				continue
			}
			key := describeKey(o.Group, o.Kind, o.Namespace, o.Name)
			if hits[key] == nil {
				hits[key] = &hit{object: o}
			}
			hits[key].backups = append(hits[key].backups, b)
		}
	}
	var all []*hit
	for _, h := range hits {
		slices.SortFunc(h.backups, func(a, b Backup) int { return compareStart(&a, &b) })
		all = append(all, h)
	}
	slices.SortFunc(all, func(a, b *hit) int {
		x, y := &a.object, &b.object
		return cmp.Or(strings.Compare(x.Group, y.Group), strings.Compare(x.Kind, y.Kind), strings.Compare(x.Namespace, y.Namespace), strings.Compare(x.Name, y.Name))
	})
	for _, h := range all {
		o := &h.object
		lines = append(lines, fmt.Sprintf("%s: %d %s %s", describeKey(o.Group, o.Kind, o.Namespace, o.Name), len(h.backups), h.backups[0].Name, h.backups[len(h.backups)-1].Name))
	}
	return lines
}

// find asks the database page by page.
func (d *Database) find(t *testing.T, q Query) (lines []string) {
	t.Helper()
	for {
		found, err := d.FindObjects(t.Context(), &q)
		require.NoError(t, err)
		for _, f := range found {
			lines = append(lines, fmt.Sprintf("%s: %d %s %s", describeKey(f.Kind.Group, f.Kind.Kind, f.Namespace, f.Name), f.Backups, f.Oldest.Name, f.Newest.Name))
			q.After = &Key{f.Kind.Group, f.Kind.Kind, f.Namespace, f.Name}
		}
		if len(found) < q.Limit {
			return lines
		}
	}
}

// randomObjects are some of 60, of which each has one of a few contents.
func randomObjects(r *rand.Rand) (objects []Object) {
	for i := range 60 {
		if r.IntN(4) == 0 {
			continue
		}
		o := Object{Group: []string{"", "apps"}[i%2], Kind: []string{"Pod", "Deployment", "Secret"}[i%3], Version: "v1", Resource: "things", Namespace: []string{"", "a", "a-b"}[i%5%3], Name: fmt.Sprintf("web-%d", i)}
		if content := r.IntN(6); content < 3 {
			o.Hash = []byte{byte(max(content-1, 0))}
			o.Labels = map[string]string{"app": fmt.Sprint(content % 2), "tier": "x"}
			o.Annotations = []string{"note", "other"}[:content%2+1]
		}
		objects = append(objects, o)
	}
	return objects
}

func randomQuery(t *testing.T, r *rand.Rand, d *Database) Query {
	t.Helper()
	q := Query{Limit: 1 + r.IntN(9), Labels: labels.Everything()}
	kinds, err := d.ListKinds(t.Context())
	require.NoError(t, err)
	q.Kinds = kinds
	if r.IntN(3) == 0 && len(kinds) > 0 {
		q.Kinds = kinds[r.IntN(len(kinds)):]
	}
	q.Name = []string{"", "*", "*-1*", "*eb-[1-3]*", "web-?", "web-[12]*", "web-7", "*5"}[r.IntN(8)]
	q.Namespace = []string{"", "", "a", "a-b"}[r.IntN(4)]
	if r.IntN(3) == 0 {
		q.Labels, err = labels.Parse([]string{"app=1", "app!=1,tier", "!app", "app in (0,2)"}[r.IntN(4)])
		require.NoError(t, err)
	}
	if r.IntN(4) == 0 {
		q.Annotations = []string{"other"}
	}
	q.Backups = []BackupFilter{{}, {}, {Name: "b3"}, {Schedule: "s1"}, {Location: "second"}, {Since: epoch.Add(5 * time.Hour), Until: epoch.Add(12 * time.Hour)}}[r.IntN(6)]
	return q
}

// Whatever is added and forgotten in whatever order, answers are those of a plain map of backups to objects.
func TestAnswersAreThoseOfAModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 1))
			d, m := openTestDatabase(t), &model{objects: map[string][]Object{}}
			d.paging = paging{names: 1 + r.IntN(3), run: 1 + r.IntN(3)}
			objects := randomObjects(r)
			for step := range 40 {
				switch {
				case r.IntN(3) > 0 || len(m.backups) == 0:
					if r.IntN(2) == 0 {
						objects = randomObjects(r)
					}
					b := Backup{UID: fmt.Sprint(step), Name: fmt.Sprintf("b%d", step), Location: []string{"first", "second"}[r.IntN(2)], Schedule: []string{"", "s1"}[r.IntN(2)],
						Scope: fmt.Sprint(r.IntN(2)), Start: epoch.Add(time.Duration(r.IntN(20)) * time.Hour), NamesOnly: r.IntN(9) == 0}
					require.NoError(t, d.AddBackup(t.Context(), b, yieldObjects(objects...)))
					m.add(b, objects)
				default:
					uid := m.backups[r.IntN(len(m.backups))].UID
					require.NoError(t, d.ForgetBackup(t.Context(), uid))
					m.forget(uid)
				}
				if r.IntN(4) == 0 {
					require.NoError(t, d.Sweep(t.Context()))
				}
				q := randomQuery(t, r, d)
				require.Equal(t, m.find(&q), d.find(t, q), "step %d: %+v", step, q)
				checkHistory(t, d, m, objects[r.IntN(len(objects))])
			}
			for _, b := range slices.Clone(m.backups) {
				require.NoError(t, d.ForgetBackup(t.Context(), b.UID))
			}
			require.NoError(t, d.Sweep(t.Context()))
			for _, table := range []string{"object", "version", "tag", "kind", "lineage", "backup", "staged", "page", "label"} {
				require.Zero(t, d.countRows(t, table), table)
			}
		})
	}
}

func checkHistory(t *testing.T, d *Database, m *model, o Object) {
	t.Helper()
	want := map[string][]byte{}
	for _, b := range m.backups {
		for _, held := range m.objects[b.UID] {
			if held.Name == o.Name {
				want[b.Name] = held.Hash
			}
		}
	}
	kinds, err := d.ListKinds(t.Context())
	require.NoError(t, err)
	at := slices.IndexFunc(kinds, func(k Kind) bool { return k.Group == o.Group && k.Kind == o.Kind })
	if at < 0 {
		require.Empty(t, want)
		return
	}
	entries, err := d.ReadHistory(t.Context(), kinds[at], o.Namespace, o.Name, &BackupFilter{})
	require.NoError(t, err)
	got := map[string][]byte{}
	for i, e := range entries {
		got[e.Backup.Name] = e.Hash
		require.True(t, i == 0 || !e.Backup.Start.After(entries[i-1].Backup.Start), "the newest first")
	}
	require.Equal(t, want, got)
	require.Len(t, entries, len(want))
}

func (d *Database) countRows(t *testing.T, table string) (n int) {
	t.Helper()
	require.NoError(t, d.db.QueryRowContext(t.Context(), "SELECT count(*) FROM "+table).Scan(&n))
	return n
}

// Backups of two scopes in turn, and one that cannot be read to its end, add no row for what did not change.
func TestUnchangedObjectsCostNoRows(t *testing.T) {
	t.Parallel()
	d := openTestDatabase(t)
	objects := func(changed byte) []Object {
		return []Object{{Kind: "Pod", Name: "a", Hash: []byte{1}}, {Kind: "Pod", Name: "b", Hash: []byte{changed}}, {Kind: "Pod", Name: "c"}}
	}
	for i := range 20 {
		b := Backup{UID: fmt.Sprint(i), Name: "b", Location: "l", Scope: fmt.Sprint(i % 2), Start: epoch}
		require.NoError(t, d.AddBackup(t.Context(), b, yieldObjects(objects(byte(i/10))...)))
		failing := func(yield func(Object, error) bool) {
			_ = yield(objects(77)[0], nil) && yield(Object{}, context.Canceled)
		}
		require.ErrorIs(t, d.AddBackup(t.Context(), b, failing), context.Canceled)
	}
	require.Equal(t, 8, d.countRows(t, "version"), "three in each scope, and one that changed in each")
	require.Equal(t, 3, d.countRows(t, "object"))
}

func TestTheLongestTextOfAPatternIsFound(t *testing.T) {
	t.Parallel()
	for pattern, want := range map[string]string{"": "", "*": "", "web": "web", "*a?bcd*e": "bcd", "[abcdef]x": "x", "a[b*c]": "a", "long[^x]y": "long"} {
		require.Equal(t, want, nameLiteral(pattern), pattern)
	}
}
