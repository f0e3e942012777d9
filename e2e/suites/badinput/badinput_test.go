package badinput

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestBadInput gives everything to one installation, most of it at once: what is bad for one must
// not be felt by another.
func TestBadInput(t *testing.T) {
	b := newBed(t)
	b.makeLocations(t)
	b.createEstate(t, "intact")
	b.runBackup(t, "intact", velerov1.BackupSpec{IncludedNamespaces: []string{"intact"}})
	t.Run("together", func(t *testing.T) {
		t.Run("backups", b.refuseBackups)
		t.Run("restores", b.refuseRestores)
		t.Run("locations", b.seeLocations)
		t.Run("volume not taken", b.volumeNotTaken)
		t.Run("conversion fails", b.conversionFails)
	})
	t.Run("dead API", b.deadAPI)
	t.Run("still at work", func(t *testing.T) {
		b.createEstate(t, "after")
		backup := b.runBackup(t, "after", velerov1.BackupSpec{IncludedNamespaces: []string{"after"}})
		require.Equal(t, velerov1.BackupPhaseCompleted, backup.Status.Phase, backup.Status.FailureReason)
		b.hasEstate(t, "after", "after")
	})
	t.Run("nobody died", b.nobodyDied)
	t.Run("no secrets", b.noSecrets)
}

func (b *bed) nobodyDied(t *testing.T) {
	for _, m := range b.Fleet.Members {
		select {
		case <-m.Done():
			t.Errorf("%s ended: %v", m.Service, m.Err())
		default:
		}
	}
	b.Fleet.Stop()
	for _, m := range b.Fleet.Members {
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

// noSecrets looks everywhere but in Secrets and tarballs: logs, every other file of the bucket, every
// velero.io object.
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
	for _, m := range b.Fleet.Members {
		log, err := os.ReadFile(m.LogPath())
		require.NoError(t, err)
		require.NotEmpty(t, log)
		clean(m.LogPath(), log)
	}
	files := 0
	for _, key := range b.bucket.Keys(t) {
		switch {
		case strings.HasSuffix(key, ".tar.gz"):
			continue
		case strings.HasSuffix(key, ".gz"):
			clean(key, b.bucket.ReadZipped(t, key))
		default:
			clean(key, b.bucket.Read(t, key))
		}
		files++
	}
	require.Greater(t, files, 30)
	for _, list := range []client.ObjectList{&velerov1.BackupList{}, &velerov1.RestoreList{}, &velerov1.BackupStorageLocationList{}} {
		require.NoError(t, b.Client.List(t.Context(), list))
		content, err := json.Marshal(list)
		require.NoError(t, err)
		clean("the objects of the API", content)
	}
}
