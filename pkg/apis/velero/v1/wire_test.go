package v1_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/apis/velero/v2alpha1"
)

// objectsByWireDocument maps each document, written by hand from Velero 1.18's wire with every field set, to its
// type.
func objectsByWireDocument() map[string]runtime.Object {
	return map[string]runtime.Object{
		"testdata/backup.json":                   &velerov1.Backup{},
		"testdata/restore.json":                  &velerov1.Restore{},
		"testdata/schedule.json":                 &velerov1.Schedule{},
		"testdata/backupstoragelocation.json":    &velerov1.BackupStorageLocation{},
		"testdata/volumesnapshotlocation.json":   &velerov1.VolumeSnapshotLocation{},
		"testdata/deletebackuprequest.json":      &velerov1.DeleteBackupRequest{},
		"testdata/downloadrequest.json":          &velerov1.DownloadRequest{},
		"testdata/serverstatusrequest.json":      &velerov1.ServerStatusRequest{},
		"testdata/podvolumebackup.json":          &velerov1.PodVolumeBackup{},
		"testdata/podvolumerestore.json":         &velerov1.PodVolumeRestore{},
		"testdata/backuprepository.json":         &velerov1.BackupRepository{},
		"../v2alpha1/testdata/dataupload.json":   &v2alpha1.DataUpload{},
		"../v2alpha1/testdata/datadownload.json": &v2alpha1.DataDownload{},
	}
}

func TestEveryKindRoundTrips(t *testing.T) {
	for file, obj := range objectsByWireDocument() {
		t.Run(filepath.Base(file), func(t *testing.T) {
			data, err := os.ReadFile(file)
			require.NoError(t, err)
			strict := json.NewDecoder(bytes.NewReader(data))
			strict.DisallowUnknownFields()
			require.NoError(t, strict.Decode(obj))
			again, err := json.Marshal(obj.DeepCopyObject())
			require.NoError(t, err)
			require.JSONEq(t, string(data), string(again))
		})
	}
}

// TestTypesHaveNoOtherNames is the other half: what the types know and the documents do not would
// be a field that Velero has never heard of.
func TestTypesHaveNoOtherNames(t *testing.T) {
	for file, obj := range objectsByWireDocument() {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		var doc map[string]any
		require.NoError(t, json.Unmarshal(data, &doc))
		for _, part := range []string{"spec", "status"} {
			known, _ := doc[part].(map[string]any)
			have := map[string]bool{}
			jsonPaths(fieldType(t, obj, part), part, have)
			documented := map[string]bool{}
			documentPaths(known, part, documented)
			for path := range have {
				assert.Contains(t, documented, path, "%s: the type has a field the wire has not", file)
			}
		}
	}
}

func TestSchemeHasEveryKindAndItsList(t *testing.T) {
	s := runtime.NewScheme()
	require.NoError(t, velerov1.AddToScheme(s))
	require.NoError(t, v2alpha1.AddToScheme(s))
	for _, obj := range objectsByWireDocument() {
		gvks, _, err := s.ObjectKinds(obj)
		require.NoError(t, err)
		require.True(t, s.Recognizes(gvks[0].GroupVersion().WithKind(gvks[0].Kind+"List")), gvks[0].Kind)
	}
}

func TestLabelValue(t *testing.T) {
	short := strings.Repeat("a", 63)
	require.Equal(t, short, velerov1.LabelValue(short))
	require.Empty(t, velerov1.LabelValue(""))
	// printf 'a%.0s' $(seq 64) | sha256sum
	long := velerov1.LabelValue(strings.Repeat("a", 64))
	require.Equal(t, strings.Repeat("a", 57)+"ffe054", long)
}

func TestTerminalPhases(t *testing.T) {
	for phase, terminal := range map[velerov1.BackupPhase]bool{
		"": false, "New": false, "Queued": false, "ReadyToStart": false, "FailedValidation": true, "InProgress": false,
		"WaitingForPluginOperations": false, "WaitingForPluginOperationsPartiallyFailed": false, "Finalizing": false,
		"FinalizingPartiallyFailed": false, "Completed": true, "PartiallyFailed": true, "Failed": true, "Deleting": true,
	} {
		require.Equal(t, terminal, phase.Terminal(), phase)
		require.Equal(t, phase == "" || phase == "New", phase.IsNew(), phase)
	}
	for phase, terminal := range map[velerov1.RestorePhase]bool{
		"": false, "New": false, "FailedValidation": true, "InProgress": false, "WaitingForPluginOperations": false,
		"Finalizing": false, "FinalizingPartiallyFailed": false, "Completed": true, "PartiallyFailed": true, "Failed": true,
	} {
		require.Equal(t, terminal, phase.Terminal(), phase)
		require.Equal(t, phase == "" || phase == "New", phase.IsNew(), phase)
	}
}
