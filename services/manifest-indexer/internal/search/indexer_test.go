package search

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit/limittest"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/kube/objmeta"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bed has one store for all locations but "hanging", which does not answer.
type bed struct {
	t      *testing.T
	client client.Client
	store  *memstore.Store
	clock  *clocktesting.FakeClock
	hung   int // how often
	*Indexer
}

// OpenName implements Opener.
func (b *bed) OpenName(ctx context.Context, name string) (objectstore.Store, error) {
	if name != "hanging" {
		return b.store, nil
	}
	b.hung++
	b.clock.Step(openTimeout)
	<-ctx.Done()
	return nil, ctx.Err()
}

func newBed(t *testing.T) *bed {
	t.Helper()
	b := &bed{t: t, client: fake.NewClientBuilder().WithScheme(kube.Scheme()).Build(), store: memstore.New(), clock: clocktesting.NewFakeClock(epoch)}
	b.Indexer = b.newIndexer()
	return b
}

// newIndexer makes another replica.
func (b *bed) newIndexer() *Indexer {
	return NewIndexer(Config{Reader: b.client, Cached: b.client, Namespace: "velero", Opener: b, Clock: b.clock, Log: slog.New(slog.DiscardHandler)}, openTestDatabase(b.t))
}

func (b *bed) createBackup(name string, hour int, phase velerov1.BackupPhase) *velerov1.Backup {
	b.t.Helper()
	start := metav1.NewTime(epoch.Add(time.Duration(hour) * time.Hour))
	backup := &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: name, UID: types.UID("uid-" + name)}, Spec: velerov1.BackupSpec{StorageLocation: "default"}}
	backup.Status.Phase, backup.Status.StartTimestamp = phase, &start
	require.NoError(b.t, b.client.Create(b.t.Context(), backup))
	return backup
}

// storeManifest stores the manifest of a backup with these objects, which are in order.
func (b *bed) storeManifest(name string, entries ...manifest.Entry) {
	b.t.Helper()
	var out bytes.Buffer
	w, err := manifest.NewWriter(&out, manifest.Header{Backup: name}, b.t.TempDir())
	require.NoError(b.t, err)
	for i := range entries {
		e := &entries[i]
		e.Path = fmt.Sprintf("resources/%s/namespaces/%s/%s.json", manifest.GroupResource(e.Resource, e.Group), e.Meta.Namespace, e.Meta.Name)
		if !e.Preferred {
			e.Path = fmt.Sprintf("resources/%s/%s/namespaces/%s/%s.json", manifest.GroupResource(e.Resource, e.Group), e.Version, e.Meta.Namespace, e.Meta.Name)
		}
		key := manifest.AppendKey(nil, manifest.KindName(e.Group, e.Version, e.Kind), e.Meta.Namespace, e.Meta.Name)
		require.NoError(b.t, w.Add(manifest.Record{Key: key, Path: []byte(e.Path), Entry: manifest.AppendEntry(nil, e), Length: 1}))
	}
	require.NoError(b.t, w.Close(manifest.Trailer{}))
	b.store.Set(layout.BackupManifest(name), out.Bytes())
}

func (b *bed) storeList(name, text string) {
	b.t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err := io.WriteString(w, text)
	require.NoError(b.t, err)
	require.NoError(b.t, w.Close())
	b.store.Set(layout.BackupResourceList(name), out.Bytes())
}

func newEntry(kind, ns, name string, hash byte) manifest.Entry {
	return manifest.Entry{Version: "v1", Kind: kind, Resource: strings.ToLower(kind) + "s", Preferred: true, Meta: &objmeta.Meta{Namespace: ns, Name: name, Labels: objmeta.Pairs{{Key: "app", Value: name}}}, ContentHash: bytes.Repeat([]byte{hash}, manifest.ContentHashBytes)}
}

// search returns all objects as lines.
func (b *bed) search(i *Indexer) []string {
	b.t.Helper()
	kinds, err := i.ListKinds(b.t.Context())
	require.NoError(b.t, err)
	return i.find(b.t, Query{Kinds: kinds, Limit: 100, Labels: labels.Everything()})
}

func TestBackupsAreIndexedAndForgotten(t *testing.T) {
	b := newBed(t)
	_, counted := b.Coverage()
	require.False(t, counted, "before the first pass")
	b.createBackup("b2", 2, velerov1.BackupPhasePartiallyFailed)
	first := b.createBackup("b1", 1, velerov1.BackupPhaseCompleted)
	running := b.createBackup("b3", 3, velerov1.BackupPhaseInProgress)
	b.createBackup("failed", 4, velerov1.BackupPhaseFailed)
	b.storeManifest("b1", newEntry("Event", "a", "never-restored", 1), newEntry("Pod", "a", "old", 1), newEntry("Pod", "a", "same", 1))
	old := newEntry("Pod", "a", "same", 9)
	old.Version, old.Preferred = "v0", false
	b.storeManifest("b2", old, newEntry("Pod", "a", "same", 1))
	require.NoError(t, b.Pass(t.Context()))
	require.Equal(t, []string{"/Pod a/old: 1 b1 b1", "/Pod a/same: 2 b1 b2"}, b.search(b.Indexer))
	require.Equal(t, 2, b.countRows(t, "version"), "b1 was added first, and the preferred version counts")
	c, counted := b.Coverage()
	require.True(t, counted)
	require.Equal(t, Coverage{Indexed: 2, Backups: 2}, c)

	running.Status.Phase = velerov1.BackupPhaseCompleted
	require.NoError(t, b.client.Update(t.Context(), running))
	require.ErrorIs(t, b.Pass(t.Context()), objectstore.ErrNotFound)
	c, _ = b.Coverage()
	require.Equal(t, Coverage{Indexed: 2, Backups: 3}, c)
	b.storeManifest("b3", newEntry("Pod", "a", "same", 2))
	require.NoError(t, b.Pass(t.Context()), "it is not tried again at once")
	b.clock.Step(retryPeriod)
	require.NoError(t, b.Pass(t.Context()))
	require.Contains(t, b.search(b.Indexer), "/Pod a/same: 3 b1 b3")

	first.Status.Phase = velerov1.BackupPhaseDeleting
	require.NoError(t, b.client.Update(t.Context(), first))
	require.NoError(t, b.Pass(t.Context()))
	require.Equal(t, []string{"/Pod a/same: 2 b2 b3"}, b.search(b.Indexer))
	require.Equal(t, 1, b.countRows(t, "object"))

	other := b.newIndexer() // which sees it all at once
	require.NoError(t, other.Pass(t.Context()))
	require.Equal(t, b.search(b.Indexer), b.search(other))
}

// A location that hangs is tried once in a while, with a backup that was not tried, and others go on.
func TestALocationThatHangsHoldsUpNoOther(t *testing.T) {
	b := newBed(t)
	for hour, name := range []string{"h1", "h2", "h3", "b1", "b2"} {
		backup := b.createBackup(name, hour, velerov1.BackupPhaseCompleted)
		b.storeManifest(name, newEntry("Pod", "a", name, 1))
		if strings.HasPrefix(name, "h") {
			backup.Spec.StorageLocation = "hanging"
			require.NoError(t, b.client.Update(t.Context(), backup))
		}
	}
	require.ErrorIs(t, b.Pass(t.Context()), errOpenTimeout)
	require.Equal(t, []string{"/Pod a/b1: 1 b1 b1", "/Pod a/b2: 1 b2 b2"}, b.search(b.Indexer))
	require.NoError(t, b.Pass(t.Context()))
	require.Equal(t, 1, b.hung)
	b.clock.Step(retryPeriod)
	require.ErrorContains(t, b.Pass(t.Context()), `"h2"`, "h1 is due again, too")
}

// A backup that is deleted while others are added is forgotten before the next one is added.
func TestAPassEndsWhenOneIsRequested(t *testing.T) {
	b := newBed(t)
	for hour, name := range []string{"b1", "b2", "b3"} {
		b.createBackup(name, hour, velerov1.BackupPhaseCompleted)
		b.storeManifest(name, newEntry("Pod", "a", name, 1))
	}
	b.Wake()
	require.NoError(t, b.Pass(t.Context()))
	require.Equal(t, []string{"/Pod a/b1: 1 b1 b1"}, b.search(b.Indexer))
}

// A backup that does not fit stays out and takes no room from others, which come in as room is there.
func TestTheFileIsBounded(t *testing.T) {
	b := newBed(t)
	b.maxPages = 60
	require.NoError(t, b.Reset(t.Context()))
	b.createBackup("b1", 1, velerov1.BackupPhaseCompleted)
	b.createBackup("b2", 2, velerov1.BackupPhaseCompleted)
	b.createBackup("b3", 3, velerov1.BackupPhaseCompleted)
	var many []manifest.Entry
	for i := range 5000 {
		many = append(many, newEntry("Pod", "a", fmt.Sprintf("web-%04d", i), 1))
	}
	b.storeManifest("b1", newEntry("Pod", "a", "same", 1))
	b.storeManifest("b2", many...)
	b.storeManifest("b3", newEntry("Pod", "a", "same", 1))
	require.ErrorIs(t, b.Pass(t.Context()), ErrFull)
	require.Equal(t, []string{"/Pod a/same: 1 b1 b1"}, b.search(b.Indexer))
	c, _ := b.Coverage()
	require.Equal(t, Coverage{Indexed: 1, Backups: 3}, c)
	require.NoError(t, b.Pass(t.Context()))
	require.Equal(t, []string{"/Pod a/same: 2 b1 b3"}, b.search(b.Indexer))
}

// Of a backup without a manifest that can be read names are known, and nothing but the list is read.
func TestBackupsOfVeleroAreCoveredByNames(t *testing.T) {
	b := newBed(t)
	b.createBackup("foreign", 1, velerov1.BackupPhaseCompleted)
	b.createBackup("damaged", 2, velerov1.BackupPhaseCompleted)
	b.storeList("foreign", `{"v1/Pod":["a/web","a/db"],"v1/Namespace":["a"],"apps/v1/Deployment":["a/web"],"v1/Secret":null}`)
	b.store.Set(layout.BackupManifest("damaged"), []byte("no manifest"))
	b.storeList("damaged", `{"v1/Pod":["a/web"]}`)
	reads := map[string]bool{}
	b.store.Inject(func(_ memstore.Op, key string) error {
		reads[filepath.Base(key)] = true
		return nil
	})
	require.NoError(t, b.Pass(t.Context()))
	require.Equal(t, map[string]bool{"manifest.json.gz": true, "foreign-resource-list.json.gz": true, "damaged-resource-list.json.gz": true}, reads)
	require.Equal(t, []string{"/Namespace /a: 1 foreign foreign", "/Pod a/db: 1 foreign foreign", "/Pod a/web: 2 foreign damaged", "apps/Deployment a/web: 1 foreign foreign"}, b.search(b.Indexer))
	c, _ := b.Coverage()
	require.Equal(t, Coverage{Indexed: 2, Backups: 2, NamesOnly: 2}, c)
	kinds, err := b.ListKinds(t.Context())
	require.NoError(t, err)
	require.Equal(t, "deployments.apps", kinds[2].Resource)
	entries, err := b.ReadHistory(t.Context(), kinds[1], "a", "web", &BackupFilter{})
	require.NoError(t, err)
	_, known := entries[0].IsSame(&entries[1])
	require.False(t, known)
}

// A file that is gone, replaced or overwritten is noticed, and another one gives the same answers.
func TestADamagedDatabaseIsBuiltAgain(t *testing.T) {
	for name, damage := range map[string]func(path string) error{
		"removed": os.Remove,
		"replaced": func(path string) error {
			return os.Rename(path, path+".away")
		},
		"overwritten": func(path string) error {
			return os.WriteFile(path, bytes.Repeat([]byte("no database "), 10_000), 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			b.createBackup("b1", 1, velerov1.BackupPhaseCompleted)
			b.createBackup("b2", 2, velerov1.BackupPhaseCompleted)
			b.storeManifest("b1", newEntry("Pod", "a", "web", 1))
			b.storeManifest("b2", newEntry("Pod", "a", "web", 2))
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- b.Run(ctx) }()
			complete := func() bool {
				c, ok := b.Coverage()
				return ok && c.Indexed == 2
			}
			require.Eventually(t, complete, time.Minute, time.Millisecond)
			before := b.search(b.Indexer)
			b.mu.Lock() // the cached pages of its connections go, as they do with time
			b.db.SetMaxIdleConns(0)
			_, err := b.db.ExecContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)")
			require.NoError(t, err)
			require.NoError(t, damage(b.path))
			b.mu.Unlock()
			_, err = b.ListKinds(ctx)
			require.ErrorIs(t, err, ErrDamaged)
			b.createBackup("b3", 3, velerov1.BackupPhaseFailed)
			require.Eventually(t, func() bool {
				b.Wake()
				_, err := b.ListKinds(ctx)
				return err == nil && complete()
			}, time.Minute, time.Millisecond)
			require.Equal(t, before, b.search(b.Indexer))
			cancel()
			require.NoError(t, <-ended)
		})
	}
}

// Values of annotations do not get into the file, and of Secrets nothing but names, labels and keys.
func TestNoValueIsInTheDatabase(t *testing.T) {
	b := newBed(t)
	b.createBackup("b1", 1, velerov1.BackupPhaseCompleted)
	secret := newEntry("Secret", "a", "db", 1)
	secret.Meta.Annotations = objmeta.Pairs{{Key: "note", Value: "canary-1"}, {Key: "kubectl.kubernetes.io/last-applied-configuration", Value: `{"data":"canary-2"}`}, {Key: "meta.helm.sh/release-name", Value: "canary-3"}}
	b.storeManifest("b1", secret)
	require.NoError(t, b.Pass(t.Context()))
	kinds, err := b.ListKinds(t.Context())
	require.NoError(t, err)
	require.Len(t, b.find(t, Query{Kinds: kinds, Limit: 9, Labels: labels.Everything(), Annotations: []string{"note", "meta.helm.sh/release-name"}}), 1)
	files, err := filepath.Glob(b.path + "*")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NotContains(t, string(data), "canary", file)
	}
}

// FuzzResourceList: a list that cannot be read is an error, and none takes more memory than its limit.
func FuzzResourceList(f *testing.F) {
	for _, text := range []string{`{"v1/Pod":["a/b","c"]}`, `{"v1/Pod":null}`, `{"Pod":["a"]}`, `{"v1/Pod":{"a":1}}`, `[]`, `{"":[1]}`, ``} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed)
		_, _ = w.Write(text)
		require.NoError(t, w.Close())
		var last error
		require.Less(t, limittest.Allocated(func() {
			for o, err := range fromResourceList(&packed) {
				require.NoError(t, last, "nothing follows an error")
				if last = err; err == nil {
					require.NotEmpty(t, o.Kind)
				}
			}
		}), uint64(32<<20+2000*len(text)))
		for range fromResourceList(bytes.NewReader(text)) {
			break
		}
	})
}
