package repository_test

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kopia/kopia/repo"
	"github.com/kopia/kopia/repo/format"
	"github.com/kopia/kopia/repo/maintenance"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
	"github.com/holdfast-io/holdfast/pkg/volumedata/repository"
)

func options(t *testing.T) repository.Options {
	return repository.Options{
		Namespace: "app", Password: "secret\n", Dir: t.TempDir(), CacheBytes: 64 << 20,
		Fatal: func(err error) { t.Errorf("fatal: %v", err) },
	}
}

func mustCreate(t *testing.T, store objectstore.Store) *repository.Repository {
	t.Helper()
	r, err := repository.Create(t.Context(), store, options(t))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close(t.Context())) })
	return r
}

// TestCreate checks what makes a repository one of Velero's.
func TestCreate(t *testing.T) {
	store := memstore.New()
	r := mustCreate(t, store)
	require.True(t, r.Marked)

	direct := r.Repository.(repo.DirectRepository)
	require.Equal(t, "default@default", r.ClientOptions().UsernameAtHost())
	require.Equal(t, "DYNAMIC-4M-BUZHASH", direct.ObjectFormat().Splitter)
	formats := direct.FormatManager()
	require.Equal(t, "BLAKE2B-256-128", formats.GetHashFunction())
	require.Equal(t, "AES256-GCM-HMAC-SHA256", formats.GetEncryptionAlgorithm())
	require.Empty(t, formats.GetECCAlgorithm())
	require.True(t, formats.SupportsPasswordChange())
	p, err := formats.GetMutableParameters(t.Context())
	require.NoError(t, err)
	require.Equal(t, format.FormatVersion3, p.Version)
	require.Equal(t, 20<<20, p.MaxPackSize)
	require.Equal(t, 2, p.IndexVersion)
	require.True(t, p.EpochParameters.Enabled)

	m, err := maintenance.GetParams(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, "default@default", m.Owner)
	require.Equal(t, time.Hour, m.QuickCycle.Interval)
	require.Equal(t, 24*time.Hour, m.FullCycle.Interval)

	head, ok := store.Bytes("kopia/app/kopia.repository")
	require.True(t, ok)
	var id struct {
		UniqueID string `json:"uniqueID"`
	}
	require.NoError(t, json.Unmarshal(head, &id))
	mark, ok := store.Bytes("kopia/app/udmrepo.Repository")
	require.True(t, ok)
	require.Equal(t, `{"uniqueID":"`+id.UniqueID+`"}`, string(mark))
	_, ok = store.Bytes("kopia/app/kopia.blobcfg")
	require.True(t, ok)
	for _, key := range store.Keys() {
		require.True(t, strings.HasPrefix(key, "kopia/app/"), key)
	}
}

// TestCreateAtOnce checks that concurrent creators make one repository, which all can open.
func TestCreateAtOnce(t *testing.T) {
	store := memstore.New()
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			r, err := repository.Create(t.Context(), store, options(t))
			if err == nil {
				err = r.Close(t.Context())
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	r, err := repository.Open(t.Context(), store, options(t))
	require.NoError(t, err)
	require.NoError(t, r.Close(t.Context()))
}

// TestCreateMeanwhile checks that a repository is opened which another process creates before any call of the store.
func TestCreateMeanwhile(t *testing.T) {
	for calls := range 5 { // the fifth call writes kopia.repository
		store, left := memstore.New(), calls
		store.Inject(func(memstore.Op, string) error {
			if left--; left < 0 {
				store.Inject(nil)
				mustCreate(t, store)
			}
			return nil
		})
		require.True(t, mustCreate(t, store).Marked, "after %d calls", calls)
	}
}

// TestCreateAfterKill checks that a creation that ended at any of its writes is completed by the next one.
func TestCreateAfterKill(t *testing.T) {
	for writes := range 6 {
		store := memstore.New()
		left := writes
		store.Inject(func(op memstore.Op, _ string) error {
			if op != memstore.OpPut && op != memstore.OpCreate {
				return nil
			}
			if left--; left < 0 {
				return objectstore.ErrAccess
			}
			return nil
		})
		r, err := repository.Create(t.Context(), store, options(t))
		if err == nil {
			require.NoError(t, r.Close(t.Context()))
		} else {
			require.ErrorIs(t, err, objectstore.ErrAccess)
		}
		store.Inject(nil)
		require.True(t, mustCreate(t, store).Marked, "after %d writes", writes)
	}
}

func TestOpenErrors(t *testing.T) {
	t.Parallel()
	whole := memstore.New()
	r, err := repository.Create(t.Context(), whole, options(t))
	require.NoError(t, err)
	require.NoError(t, r.Close(t.Context()))
	change := func(key string, edit func([]byte) []byte) func(*testing.T, *memstore.Store) {
		return func(t *testing.T, s *memstore.Store) {
			data, ok := s.Bytes("kopia/app/" + key)
			require.True(t, ok)
			s.Set("kopia/app/"+key, edit(data))
		}
	}
	replace := func(from, to string) func([]byte) []byte {
		return func(b []byte) []byte { return []byte(strings.Replace(string(b), from, to, 1)) }
	}
	half := func(b []byte) []byte { return b[:len(b)/2] }
	index := func(t *testing.T, s *memstore.Store) string {
		for _, key := range s.Keys() {
			if strings.HasPrefix(key, "kopia/app/x") {
				return strings.TrimPrefix(key, "kopia/app/")
			}
		}
		t.Fatal("no index")
		return ""
	}
	for name, c := range map[string]struct {
		damage func(*testing.T, *memstore.Store)
		edit   func(*repository.Options)
		want   error
	}{
		"absent":         {edit: func(o *repository.Options) { o.Namespace = "other" }, want: repository.ErrAbsent},
		"wrong password": {edit: func(o *repository.Options) { o.Password = "other" }, want: repository.ErrPassword},
		"without kopia's format": {damage: func(t *testing.T, s *memstore.Store) {
			require.NoError(t, s.Delete(t.Context(), "kopia/app/kopia.repository"))
		}, want: repository.ErrForeign},
		"truncated format":       {damage: change("kopia.repository", half), want: repository.ErrDamaged},
		"another encryption":     {damage: change("kopia.repository", replace("AES256_GCM", "ROT13")), want: repository.ErrFormat},
		"another key derivation": {damage: change("kopia.repository", replace("scrypt-65536-8-1", "argon")), want: repository.ErrFormat},
		"another mark":           {damage: change("udmrepo.Repository", replace(`"uniqueID":"`, `"uniqueID":"A`)), want: repository.ErrDamaged},
		"truncated index":        {damage: func(t *testing.T, s *memstore.Store) { change(index(t, s), half)(t, s) }, want: repository.ErrDamaged},
		"store away": {damage: func(_ *testing.T, s *memstore.Store) {
			s.Inject(func(memstore.Op, string) error { return objectstore.ErrAccess })
		}, want: objectstore.ErrAccess},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := memstore.New()
			for _, key := range whole.Keys() {
				data, _ := whole.Bytes(key)
				store.Set(key, data)
			}
			o := options(t)
			if c.damage != nil {
				c.damage(t, store)
			}
			if c.edit != nil {
				c.edit(&o)
			}
			_, err := repository.Open(t.Context(), store, o)
			require.ErrorIs(t, err, c.want)
		})
	}
}

// TestNoMark checks that a repository of Velero before 1.18 opens.
func TestNoMark(t *testing.T) {
	store := memstore.New()
	mustCreate(t, store)
	require.NoError(t, store.Delete(t.Context(), "kopia/app/udmrepo.Repository"))
	r, err := repository.Open(t.Context(), store, options(t))
	require.NoError(t, err)
	require.False(t, r.Marked)
	require.NoError(t, r.Close(t.Context()))
}
