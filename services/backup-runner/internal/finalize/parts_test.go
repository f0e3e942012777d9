package finalize_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/part"
	"github.com/holdfast-io/holdfast/pkg/kube/objmeta"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/finalize"
)

// newCollectibleState is the state of a backup whose collection stores three parts of five objects each.
func newCollectibleState(t *testing.T, store objectstore.Store) *finalize.State {
	t.Helper()
	s := newState(t, store, &bytes.Buffer{})
	s.Collect = func(context.Context) (checkpoint.Composition, error) {
		var parts []sealedPart
		for p := range 3 {
			parts = append(parts, sealPart(t, t.TempDir(), p, 5, 100))
		}
		return storeCollected(t, store, parts), nil
	}
	return s
}

// nothingCollected stores no part.
func nothingCollected(t *testing.T, store objectstore.Store) func(context.Context) (checkpoint.Composition, error) {
	t.Helper()
	return func(context.Context) (checkpoint.Composition, error) { return storeCollected(t, store, nil), nil }
}

// sealedPart is a part on its way to the bucket.
type sealedPart struct {
	data, sidecar part.File
	items         int
}

// sealPart makes the p-th of some parts. Their objects follow one another, as those of lists do.
func sealPart(tb testing.TB, dir string, p, items, size int) sealedPart {
	tb.Helper()
	rng := rand.New(rand.NewPCG(1, uint64(p)))
	w, err := part.NewWriter(part.Config{Dir: dir, ModTime: time.Unix(1700000000, 0)})
	require.NoError(tb, err)
	for i := range items {
		name := fmt.Sprintf("item-%06d", p*items+i)
		var data strings.Builder
		for data.Len() < size {
			fmt.Fprintf(&data, "%08x-repeated", rng.Uint32())
		}
		raw := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"namespace":"bench","uid":"uid-%s"},"data":{"v":%q}}`, name, name, data.String())
		require.NoError(tb, w.Add(part.Item{
			GVK: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, Resource: "configmaps", Preferred: true, Raw: []byte(raw),
			HasTypeMeta: true, Meta: &objmeta.Meta{Name: name, Namespace: "bench", UID: "uid-" + name},
		}))
	}
	s, err := w.Seal()
	require.NoError(tb, err)
	return sealedPart{data: s.Data, sidecar: s.Sidecar, items: s.Items}
}

// storeCollected stores the parts and their records, as collecting does.
func storeCollected(tb testing.TB, store objectstore.Store, parts []sealedPart) checkpoint.Composition {
	tb.Helper()
	log, err := checkpoint.Open(tb.Context(), store, "b", "u", 1)
	require.NoError(tb, err)
	c := checkpoint.Composition{Backup: "b", UID: "u", Epoch: 1, Phase: velerov1.BackupPhaseCompleted, Revisions: []string{"7"}}
	for i, p := range parts {
		key := layout.Part("b", "u", 1, fmt.Sprintf("w%d", i%4), 1, i)
		putFile(tb, store, key, p.data)
		putFile(tb, store, layout.Sidecar(key), p.sidecar)
		record, err := log.Append(tb.Context(), checkpoint.Record{Part: checkpoint.Part{
			Key: key, Size: p.data.Size, SHA256: p.data.SHA256, Items: p.items,
			SidecarKey: layout.Sidecar(key), SidecarSize: p.sidecar.Size, SidecarSHA256: p.sidecar.SHA256,
		}})
		require.NoError(tb, err)
		c.Checkpoints, c.Items = append(c.Checkpoints, record), c.Items+p.items
	}
	c, err = checkpoint.RecordComposition(tb.Context(), store, c)
	require.NoError(tb, err)
	return c
}

func putFile(tb testing.TB, store objectstore.Store, key string, f part.File) {
	tb.Helper()
	in, err := os.Open(f.Path)
	require.NoError(tb, err)
	require.NoError(tb, errors.Join(store.Create(tb.Context(), key, in, f.Size), in.Close()))
}
