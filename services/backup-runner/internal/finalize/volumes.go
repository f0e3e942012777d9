package finalize

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/apis/velero/v2alpha1"
	"github.com/holdfast-io/holdfast/pkg/archive/nativesnapshot"
	"github.com/holdfast-io/holdfast/pkg/archive/part"
	"github.com/holdfast-io/holdfast/pkg/extsort"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
)

// volumeEntries writes an array of entries about volumes, in an order of its own: they come as parallel
// work came to them.
type volumeEntries struct {
	path   string
	empty  string // the file without entries
	sorter *extsort.Sorter
}

func newVolumes(path, empty string) *volumeEntries {
	return &volumeEntries{path: path, empty: empty, sorter: extsort.New(extsort.Config{Dir: filepath.Dir(path)})}
}

// addInfos adds what became of volumes, in the order of claims and volumes.
func (v *volumeEntries) addInfos(infos []checkpoint.VolumeInfo) error {
	for i := range infos {
		if infos[i].Pending { // another entry has what became of it
			continue
		}
		key := infos[i].PVCNamespace + "\x00" + infos[i].PVCName + "\x00" + infos[i].PVName
		if pod := infos[i].PodVolume; pod != nil {
			key += "\x00" + pod.PodNamespace + "\x00" + pod.PodName + "\x00" + pod.Volume
		}
		if err := v.addEntry(key, &infos[i]); err != nil {
			return err
		}
	}
	return nil
}

// addSnapshots adds snapshots, in the order of their volumes, and returns how many of them there
// are.
func (v *volumeEntries) addSnapshots(snapshots []nativesnapshot.Snapshot) (completed int, err error) {
	for i := range snapshots {
		if err := v.addEntry(snapshots[i].Spec.PersistentVolumeName, &snapshots[i]); err != nil {
			return completed, err
		}
		if snapshots[i].Status.Phase == nativesnapshot.PhaseCompleted {
			completed++
		}
	}
	return completed, nil
}

func (v *volumeEntries) addEntry(key string, entry any) error {
	data, err := json.Marshal(entry)
	if err != nil {
		return fmt.Errorf("encode volume info: %w", err)
	}
	if err := v.sorter.Add([]byte(key), data); err != nil {
		return fmt.Errorf("sort volume info: %w", err)
	}
	return nil
}

// createFile writes the entries.
func (v *volumeEntries) createFile() (part.File, error) {
	g, err := createGzip(v.path)
	if err != nil {
		return part.File{}, err
	}
	err = v.writeEntries(g.zip)
	f, closeErr := g.close()
	if err := errors.Join(err, closeErr); err != nil {
		removeFiles(part.File{Path: v.path})
		return part.File{}, fmt.Errorf("write volume info: %w", err)
	}
	return f, nil
}

func (v *volumeEntries) writeEntries(w io.Writer) (err error) {
	sorted, err := v.sorter.Sort()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sorted.Close()) }()
	for separator := "["; ; separator = "," {
		_, data, err := sorted.Next()
		switch {
		case errors.Is(err, io.EOF) && separator == "[":
			_, err = io.WriteString(w, v.empty)
			return err
		case errors.Is(err, io.EOF):
			_, err = io.WriteString(w, "]\n")
			return err
		case err != nil:
			return err
		}
		if _, err := fmt.Fprintf(w, "%s%s", separator, data); err != nil {
			return err
		}
	}
}

// close releases what the entries took; what was not written is lost.
func (v *volumeEntries) close() { _ = v.sorter.Close() }

// aboutVolumes is the volumes of the records.
type aboutVolumes struct {
	info, snapshots  *volumeEntries
	begun, completed int
	// ends are the ends of the operations of CSI snapshots, by their identifiers.
	ends map[string]operation.State
	// moves are those of moved snapshots, uploads their DataUploads.
	moves   map[string]operation.State
	uploads map[string]*v2alpha1.DataUpload
	// requests are the claims of file-system backups, as namespace/name.
	requests map[string]struct{}
	// undecided are the volumes of claims whose result no record has.
	undecided map[string]struct{}
}

func newAboutVolumes(dir string) *aboutVolumes {
	return &aboutVolumes{
		info:      newVolumes(filepath.Join(dir, "volumeinfo.json.gz"), "[]\n"),
		snapshots: newVolumes(filepath.Join(dir, "volumesnapshots.json.gz"), "null\n"), // as in Velero 1.18
		undecided: map[string]struct{}{}, requests: map[string]struct{}{},
	}
}

func (a *aboutVolumes) addRecord(rec *checkpoint.Record) error {
	for i := range rec.Volumes {
		a.concludeSnapshot(&rec.Volumes[i])
	}
	if err := a.info.addInfos(a.withoutRequested(rec.Volumes)); err != nil {
		return err
	}
	for i := range rec.Volumes {
		switch v := &rec.Volumes[i]; {
		case !v.Pending:
			delete(a.undecided, v.PVName)
		case v.PVCName != "":
			a.undecided[v.PVName] = struct{}{}
		}
	}
	completed, err := a.snapshots.addSnapshots(rec.Snapshots)
	a.begun, a.completed = a.begun+len(rec.Snapshots), a.completed+completed
	return err
}

// addRequests adds the volumes of file-system backups, whose entries take the place of those that
// records have of their claims.
func (a *aboutVolumes) addRequests(requests []velerov1.PodVolumeBackup) error {
	infos := make([]checkpoint.VolumeInfo, len(requests))
	for i := range requests {
		infos[i] = checkpoint.VolumeOfRequest(&requests[i])
		if infos[i].PVCName != "" {
			a.requests[infos[i].PVCNamespace+"/"+infos[i].PVCName] = struct{}{}
		}
	}
	return a.info.addInfos(infos)
}

// withoutRequested returns entries but for those that only say how the claims of file-system backups
// were not taken otherwise.
func (a *aboutVolumes) withoutRequested(infos []checkpoint.VolumeInfo) []checkpoint.VolumeInfo {
	if len(a.requests) == 0 {
		return infos
	}
	return slices.DeleteFunc(slices.Clone(infos), func(i checkpoint.VolumeInfo) bool {
		_, requested := a.requests[i.PVCNamespace+"/"+i.PVCName]
		return requested && (i.Skipped || i.Method == checkpoint.MethodPodVolume)
	})
}

// concludeSnapshot writes how the CSI snapshot of a volume ended.
func (a *aboutVolumes) concludeSnapshot(v *checkpoint.VolumeInfo) {
	if m := v.Movement; m != nil {
		end := a.moves[m.OperationID]
		v.ConcludeMovement(a.uploads[m.OperationID], &end)
		return
	}
	if v.CSI == nil {
		return
	}
	end, known := a.ends[v.CSI.OperationID]
	if !known {
		return
	}
	v.Result = checkpoint.Succeeded
	if end.Phase == operation.Failed {
		v.Result = checkpoint.Failed
	}
	ended := metav1.NewTime(end.EndTime)
	v.CompletionTimestamp = &ended
}

// errUndecided means that a backup would not report missing volume data.
var errUndecided = errors.New("no record tells what became of the data of volumes of the backup")

// checkComplete returns an error naming volumes of which nothing would be stored.
func (a *aboutVolumes) checkComplete() error {
	if len(a.undecided) == 0 {
		return nil
	}
	names := slices.Sorted(maps.Keys(a.undecided))
	return fmt.Errorf("%w: %d of them, such as %q", errUndecided, len(names), names[0])
}

func (a *aboutVolumes) close() {
	a.info.close()
	a.snapshots.close()
}
