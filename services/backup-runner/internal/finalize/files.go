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

// named is a work file and the key of the object it becomes.
type named struct {
	key  string
	file part.File
}

// storeFiles stores the merged files and the small ones. Without operations and file system backups
// those hold what Velero writes then: null and [].
func storeFiles(ctx context.Context, s *State) error {
	files, err := s.files()
	defer func() {
		for _, f := range files {
			remove(f.file)
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

// files are the files of the backup beside tarball and metadata; with an error, those that were
// made before it.
func (s *State) files() ([]named, error) {
	name, merged := s.Backup.Name, s.Merged
	files := []named{
		{layout.BackupManifest(name), merged.Manifest},
		{layout.BackupResourceList(name), merged.ResourceList},
		{layout.BackupResults(name), merged.Results},
		{layout.BackupLog(name), merged.Log},
	}
	for _, f := range []struct {
		key  string
		make func() (part.File, error)
	}{
		{layout.BackupVolumeInfo(name), s.volumes.info.file},
		{layout.BackupVolumeSnapshots(name), s.volumes.snapshots.file},
		{layout.BackupItemOperations(name), s.operationsFile},
		{layout.BackupPodVolumeBackups(name), func() (part.File, error) {
			return jsonFile(filepath.Join(s.Dir, "null.json.gz"), []byte("null\n"))
		}},
	} {
		file, err := f.make()
		if err != nil {
			return files, err
		}
		files = append(files, named{f.key, file})
	}
	return files, nil
}

func remove(files ...part.File) {
	for _, f := range files {
		_ = os.Remove(f.Path) // best effort: the job's directory is removed at its end
	}
}
