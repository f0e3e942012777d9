package download

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// signing has stores that sign URLs or not, as the test sets, like those behind a plugin.
type signing struct {
	Locations
	sign func() (string, error)
}

type signedStore struct {
	objectstore.Store
	sign func() (string, error)
}

func (s signing) Open(ctx context.Context, loc *velerov1.BackupStorageLocation) (objectstore.Store, error) {
	store, err := s.Locations.Open(ctx, loc)
	return signedStore{store, s.sign}, err
}

func (s signedStore) SignGet(context.Context, string, time.Duration) (string, error) { return s.sign() }

func TestWhatThePluginDoesNotSignIsServedByUs(t *testing.T) {
	b := newBed(t)
	answer, failure := "https://files.example/x", error(nil)
	b.r.Locations = signing{b.r.Locations, func() (string, error) { return answer, failure }}
	dr, _ := b.requestDownload(velerov1.DownloadTargetKindBackupLog, "on-file")
	require.Equal(t, answer, dr.Status.DownloadURL)

	answer, failure = "", fmt.Errorf("sign: %w", objectstore.ErrUnsigned)
	dr, _ = b.requestDownload(velerov1.DownloadTargetKindBackupLog, "on-file")
	require.Contains(t, dr.Status.DownloadURL, "http://127.0.0.1:8445/artifacts/file/backups/on-file/on-file-logs.gz?")

	failure = errors.New("no answer in time")
	require.NoError(t, b.client.Delete(t.Context(), dr))
	dr = &velerov1.DownloadRequest{}
	dr.Namespace, dr.Name = key.Namespace, key.Name
	dr.Spec.Target = velerov1.DownloadTarget{Kind: velerov1.DownloadTargetKindBackupLog, Name: "on-file"}
	require.NoError(t, b.client.Create(t.Context(), dr))
	_, err := b.r.Reconcile(t.Context(), reconcile.Request{NamespacedName: key})
	require.ErrorContains(t, err, "no answer in time", "which is tried again: it may sign the next time")
}
