package finalize

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/holdfast-io/holdfast/pkg/archive/assembly"
	"github.com/holdfast-io/holdfast/pkg/archive/part"
	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/job/panics"
	"github.com/holdfast-io/holdfast/pkg/layout"
)

// keyedFile is a work file and the key of the object it becomes.
type keyedFile struct {
	key  string
	file part.File
}

// storeFiles stores the merged files and the small ones. Without operations and file system backups
// those hold what Velero writes then: null and [].
func storeFiles(ctx context.Context, s *State) error {
	files, err := s.createFiles()
	defer func() {
		for _, f := range files {
			removeFiles(f.file)
		}
	}()
	if err != nil {
		return err
	}
	return panics.ForEach(ctx, len(files), len(files), func(ctx context.Context, i int) error {
		f := files[i]
		if _, err := assembly.Create(ctx, s.Store, f.key, f.file); err != nil {
			return fmt.Errorf("store %s: %w", f.key, err)
		}
		failpoint.Hit("backup-runner/file-published")
		return nil
	})
}

// createFiles are the files of the backup beside tarball and metadata; with an error, those that were
// made before it.
func (s *State) createFiles() ([]keyedFile, error) {
	name, merged := s.Backup.Name, s.Merged
	files := []keyedFile{
		{layout.BackupManifest(name), merged.Manifest},
		{layout.BackupResourceList(name), merged.ResourceList},
		{layout.BackupResults(name), merged.Results},
		{layout.BackupLog(name), merged.Log},
	}
	for _, f := range []struct {
		key  string
		make func() (part.File, error)
	}{
		{layout.BackupVolumeInfo(name), s.volumes.info.createFile},
		{layout.BackupVolumeSnapshots(name), s.volumes.snapshots.createFile},
		{layout.BackupItemOperations(name), s.operationsFile},
		{layout.BackupPodVolumeBackups(name), func() (part.File, error) {
			return jsonFile(filepath.Join(s.Dir, "null.json.gz"), []byte("null\n"))
		}},
	} {
		if f.key == layout.BackupPodVolumeBackups(name) && s.PodVolumes != nil && s.hasPodVolumes() {
			continue // fixRequests stored it
		}
		file, err := f.make()
		if err != nil {
			return files, err
		}
		files = append(files, keyedFile{f.key, file})
	}
	return files, nil
}

func removeFiles(files ...part.File) {
	for _, f := range files {
		_ = os.Remove(f.Path) // best effort: the job's directory is removed at its end
	}
}
