// Command searchindex measures the search index of manifest-indexer on made-up backups, and prints
// search.db_bytes_per_object, search.db_growth_ratio.100, how much larger the database of 100 backups of the same 50,000 objects is
// than that of one, where the status of half of them changed in between; and search.p95_ms, the 95th
// percentile of the time of a query over 500 backups of 2,000 objects, a million in all of which 550,000
// are distinct. Queries are a mix, each as often: an exact name of a kind in a namespace, a prefix in a
// namespace, a leading wildcard that one object matches, one that many match, one that none matches, a
// label in a namespace, what one backup holds of a kind, and the history of an object. A page has 100
// objects.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"iter"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/kube/objmeta"
	"github.com/holdfast-io/holdfast/services/manifest-indexer/internal/search"
)

const (
	scopes, backupsPerScope = 50, 10
	stable, fresh           = 1000, 1000 // objects of a backup: of all backups of its scope, and of this one
	rounds                  = 25         // of the mix
	percentile              = 95
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func main() {
	dir := flag.String("dir", "", "work directory; it must exist")
	objects := flag.Int("objects", 50_000, "number of objects of each of the 100 backups")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM) //nolint:forbidigo // this is where contexts begin
	err := measureGrowth(ctx, os.Stdout, *dir, *objects)
	if err == nil {
		err = measureQueries(ctx, os.Stdout, *dir)
	}
	stop()
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "searchindex:", err)
		os.Exit(1) //nolint:forbidigo // the end of main
	}
}

// measureGrowth compares the database of one backup with that of a hundred.
func measureGrowth(ctx context.Context, out io.Writer, dir string, objects int) error {
	one, err := measureFile(ctx, dir, 1, objects)
	if err != nil {
		return err
	}
	hundred, err := measureFile(ctx, dir, 100, objects)
	if err == nil {
		_, err = fmt.Fprintf(out, "search.db_bytes_per_object %.1f\nsearch.db_growth_ratio.100 %.4f\n", float64(one)/float64(objects), float64(hundred)/float64(one))
	}
	return err
}

// measureFile returns the size of a database with so many backups of the same objects.
func measureFile(ctx context.Context, dir string, backups, objects int) (int64, error) {
	path := filepath.Join(dir, "growth.db")
	d, err := search.OpenDatabase(ctx, path)
	for i := 0; i < backups && err == nil; i++ {
		err = d.AddBackup(ctx, newBackup(0, i), sameObjects(i, objects))
	}
	if err == nil {
		err = d.Close() // which writes everything into the one file
	}
	if err != nil {
		return 0, err
	}
	info, err := os.Stat(path)
	return info.Size(), err
}

func newBackup(scope, number int) search.Backup {
	name := fmt.Sprintf("scope-%02d-%03d", scope, number)
	return search.Backup{UID: name, Name: name, Location: "default", Schedule: fmt.Sprintf("scope-%02d", scope), Scope: fmt.Sprint(scope), Start: start.Add(time.Duration(number) * time.Hour)}
}

// sameObjects are Pods, of which every second one has another status in each backup.
func sameObjects(backup, count int) iter.Seq2[search.Object, error] {
	return func(yield func(search.Object, error) bool) {
		hasher := manifest.NewContentHasher()
		for i := range count {
			o := newObject("Pod", i, fmt.Sprintf("app-%05d-%05d", i/10, i))
			status := (i % 2) * backup
			body := fmt.Appendf(nil, `{"metadata":{"name":%q},"spec":{"replicas":%d},"status":{"observed":%d}}`, o.Name, i, status)
			o.Hash = slices.Clone(hasher.HashContent(&manifest.Content{Kind: o.Kind, Body: body, Meta: &objmeta.Meta{Name: o.Name}}))
			if !yield(o, nil) {
				return
			}
		}
	}
}

func newObject(kind string, i int, name string) search.Object {
	return search.Object{
		Version: "v1", Kind: kind, Resource: "things", Namespace: fmt.Sprintf("team-%02d", i%40), Name: name, Hash: fmt.Appendf(nil, "%016d", i),
		Labels: map[string]string{"app": fmt.Sprintf("app-%05d", i/10), "tier": []string{"web", "db"}[i%2]}, Annotations: []string{"example.com/checksum"},
	}
}

// scopeObjects are those of a backup: names are of those of an earlier one where they are stable.
func scopeObjects(scope, number int) iter.Seq2[search.Object, error] {
	return func(yield func(search.Object, error) bool) {
		for i := range stable + fresh {
			kind, of := []string{"ConfigMap", "Deployment", "Secret", "Service"}[i%4], 0
			if i >= stable {
				kind, of = "Pod", number
			}
			if !yield(newObject(kind, i, fmt.Sprintf("app-%02d-worker-%02d-%05d", scope, of, i)), nil) {
				return
			}
		}
	}
}

func measureQueries(ctx context.Context, out io.Writer, dir string) error {
	d, err := search.OpenDatabase(ctx, filepath.Join(dir, "queries.db"))
	if err != nil {
		return err
	}
	for number := range backupsPerScope {
		for scope := range scopes {
			if err := d.AddBackup(ctx, newBackup(scope, number), scopeObjects(scope, number)); err != nil {
				return err
			}
		}
	}
	kinds, err := d.ListKinds(ctx)
	if err != nil {
		return err
	}
	var took []time.Duration
	for round := range rounds {
		for i, q := range newMix(kinds, round) {
			began := time.Now() //nolint:forbidigo // this is what is measured
			found, err := d.FindObjects(ctx, q)
			if err != nil {
				return err
			}
			took = append(took, time.Since(began)) //nolint:forbidigo // likewise
			if none := i == missing; none != (len(found) == 0) {
				return fmt.Errorf("query %d of the mix found %d objects", i, len(found))
			}
		}
		began := time.Now() //nolint:forbidigo // likewise
		entries, err := d.ReadHistory(ctx, kinds[0], "team-00", fmt.Sprintf("app-%02d-worker-00-00000", round), &search.BackupFilter{})
		if took = append(took, time.Since(began)); err != nil || len(entries) != backupsPerScope { //nolint:forbidigo // likewise
			return fmt.Errorf("history of %d backups: %w", len(entries), err)
		}
	}
	slices.Sort(took)
	_, err = fmt.Fprintf(out, "search.p95_ms %.3f\n", float64(took[len(took)*percentile/100].Microseconds())/1000)
	return errors.Join(err, d.Close())
}

// missing is the place in the mix of the query that nothing matches.
const missing = 4

func newMix(kinds []search.Kind, round int) []*search.Query {
	label, _ := labels.Parse("app=app-00004") // it is well-formed
	name := fmt.Sprintf("app-%02d-worker-00-00004", round)
	mix := []*search.Query{
		{Name: name, Kinds: kinds[:1], Namespace: "team-04"},
		{Name: fmt.Sprintf("app-%02d-*", round), Namespace: "team-07"},
		{Name: "*" + name[2:]},
		{Name: fmt.Sprintf("*-worker-%02d-*", round%backupsPerScope)},
		{Name: fmt.Sprintf("*absent-%d*", round)},
		{Labels: label, Namespace: "team-01"},
		{Kinds: kinds[:1], Backups: search.BackupFilter{Name: fmt.Sprintf("scope-%02d-003", round)}},
	}
	for _, q := range mix {
		q.Limit = 100
		if q.Labels == nil {
			q.Labels = labels.Everything()
		}
		if q.Kinds == nil {
			q.Kinds = kinds
		}
	}
	return mix
}
