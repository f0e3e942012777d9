package job_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/job"
)

type cleanerStore struct {
	store objectstore.Store
	mode  velerov1.BackupStorageLocationAccessMode
	err   error
}

func (l cleanerStore) Get(_ context.Context, name string) (*velerov1.BackupStorageLocation, error) {
	loc := &velerov1.BackupStorageLocation{ObjectMeta: metav1.ObjectMeta{Name: name}}
	loc.Spec.AccessMode = l.mode
	return loc, l.err
}

func (l cleanerStore) Default(ctx context.Context) (*velerov1.BackupStorageLocation, error) {
	return l.Get(ctx, "")
}

func (l cleanerStore) Open(context.Context, *velerov1.BackupStorageLocation) (objectstore.Store, error) {
	return l.store, nil
}

// refusing is a bucket whose credentials may only read, and that says so in words of its own.
type refusing struct{ objectstore.Store }

func (refusing) Delete(context.Context, string) error { return errors.New("405 Method Not Allowed") }

func TestClean(t *testing.T) {
	away := errors.New("away")
	absent := apierrors.NewNotFound(schema.GroupResource{Resource: "backupstoragelocations"}, "default")
	tests := map[string]struct {
		noBackup bool
		marked   bool
		open     error
		readOnly bool
		fault    error // of the bucket
		files    int   // left under restores/r/
		gone     bool
		err      error
	}{
		"files and finalizer go":          {gone: true},
		"backup is gone":                  {noBackup: true, files: 2, gone: true},
		"files are elsewhere":             {noBackup: true, marked: true, gone: true},
		"location is gone":                {open: absent, files: 2, gone: true},
		"location is away":                {open: away, files: 2, err: away},
		"location that cannot be written": {readOnly: true, files: 2, gone: true},
		"ReadOnly bucket is away":         {readOnly: true, fault: away, files: 2, err: away},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			memory := memstore.New()
			for _, key := range []string{"restores/r/restore-r-logs.gz", "restores/r/records/u/1", "restores/r2/keep", "backups/b/keep"} {
				memory.Set(key, []byte("x"))
			}
			locations := cleanerStore{store: memory, err: tt.open}
			if tt.readOnly {
				locations.store, locations.mode = refusing{memory}, velerov1.LocationModeReadOnly
			}
			if tt.fault != nil {
				memory.Inject(func(memstore.Op, string) error { return tt.fault })
			}
			c := fake.NewClientBuilder().WithScheme(kube.Scheme()).Build()
			restore := &velerov1.Restore{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "r", Finalizers: []string{velerov1.RestoreFinalizer}},
				Spec: velerov1.RestoreSpec{BackupName: "b"}}
			if tt.marked {
				require.NoError(t, mark.SetFilesLocation(restore, "other"))
			}
			require.NoError(t, c.Create(t.Context(), restore))
			if !tt.noBackup {
				require.NoError(t, c.Create(t.Context(), &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "b"},
					Spec: velerov1.BackupSpec{StorageLocation: "default"}}))
			}
			require.NoError(t, c.Delete(t.Context(), restore))
			require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(restore), restore))
			cleaner := &job.FileCleaner{Reader: c, Client: c, Locations: locations, Log: slog.New(slog.DiscardHandler)}
			err := cleaner.Clean(t.Context(), restore)
			require.ErrorIs(t, err, tt.err)
			require.Len(t, memory.Keys(), tt.files+2)
			err = c.Get(t.Context(), client.ObjectKeyFromObject(restore), &velerov1.Restore{})
			require.Equal(t, tt.gone, apierrors.IsNotFound(err))
			if tt.gone {
				require.NoError(t, cleaner.Clean(t.Context(), restore), "cleaning again is harmless")
			}
		})
	}
}
