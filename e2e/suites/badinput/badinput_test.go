package badinput

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// TestBadInput gives everything to one installation, most of it at once: what is bad for one must
// not be felt by another.
func TestBadInput(t *testing.T) {
	b := newBed(t, plantForeign)
	b.makeLocations(t)
	b.startGadgets(t)
	b.api.awaitImported(t, "intact")
	t.Run("together", func(t *testing.T) {
		t.Run("backups", b.refuseBackups)
		t.Run("restores", b.refuseRestores)
		t.Run("name", b.refuseName)
		t.Run("locations", b.seeLocations)
		t.Run("lost location", b.lostLocation)
		t.Run("hook annotation", b.hookAnnotation)
		t.Run("volume not taken", b.volumeNotTaken)
		t.Run("list fails", b.listFails)
		t.Run("broken item", b.itemIsBroken)
		t.Run("conversion fails", b.conversionFails)
		t.Run("tarballs", b.restoreForeign)
		t.Run("damage in one member", b.damagedMember)
		t.Run("submit", b.submitBadRequests)
		t.Run("unknown manifest", b.unknownManifest)
		t.Run("deletions", b.refuseDeletions)
		t.Run("downloads", b.refuseDownloads)
	})
	t.Run("dead API", b.deadAPI)
	t.Run("still at work", func(t *testing.T) {
		b.api.createEstate(t, "after")
		backup := b.runBackup(t, "after", velerov1.BackupSpec{IncludedNamespaces: []string{"after"}})
		require.Equal(t, velerov1.BackupPhaseCompleted, backup.Status.Phase, backup.Status.FailureReason)
		b.bucket.hasEstate(t, "after", "after")
	})
	t.Run("nobody died", b.nobodyDied)
	t.Run("no secrets", b.noSecrets)
}

func (b *bed) nobodyDied(t *testing.T) {
	for _, m := range b.fleet.Members {
		select {
		case <-m.Done():
			t.Errorf("%s ended: %v", m.Service, m.Err())
		default:
		}
	}
	b.fleet.Stop()
	for _, m := range b.fleet.Members {
		require.NoError(t, m.Err(), "%s ends with code 0", m.Service)
		log, err := os.ReadFile(m.LogPath())
		require.NoError(t, err)
		for _, word := range []string{"panic", "goroutine 1", "nil pointer"} {
			require.NotContains(t, strings.ToLower(string(log)), word, m.Service)
		}
	}
}

// markerForms are the forms in which the marker could be found: plain, and base64 wherever in a text it
// starts.
func markerForms(t *testing.T) [][]byte {
	t.Helper()
	out := [][]byte{[]byte(marker)}
	for shift := range 3 {
		encoded := base64.StdEncoding.EncodeToString([]byte(strings.Repeat(" ", shift) + marker))
		out = append(out, []byte(encoded[4:len(encoded)-4]))
	}
	require.Contains(t, base64.StdEncoding.EncodeToString([]byte(marker)), string(out[1]))
	return out
}

// noSecrets looks everywhere but in Secrets and tarballs: logs, every other file of every bucket,
// every velero.io object.
func (b *bed) noSecrets(t *testing.T) {
	forms := markerForms(t)
	clean := func(where string, content []byte) {
		for _, form := range forms {
			if at := bytes.Index(content, form); at >= 0 {
				t.Errorf("%s holds a Secret's value: ...%s...", where, content[max(0, at-150):min(len(content), at+80)])
				return
			}
		}
	}
	for _, m := range b.fleet.Members {
		log, err := os.ReadFile(m.LogPath())
		require.NoError(t, err)
		require.NotEmpty(t, log)
		clean(m.LogPath(), log)
	}
	files := 0
	require.NoError(t, filepath.WalkDir(b.objects, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() || strings.HasSuffix(path, ".tar.gz") {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if strings.HasSuffix(path, ".gz") {
			content = gunzipBytes(t, content)
		}
		files++
		clean(path, content)
		return nil
	}))
	require.Greater(t, files, 50)
	for _, list := range []client.ObjectList{
		&velerov1.BackupList{}, &velerov1.RestoreList{}, &velerov1.BackupStorageLocationList{}, &velerov1.DeleteBackupRequestList{}, &velerov1.DownloadRequestList{},
	} {
		require.NoError(t, b.client.List(t.Context(), list))
		content, err := json.Marshal(list)
		require.NoError(t, err)
		clean("the objects of the API", content)
	}
}
