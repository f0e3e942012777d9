package volumes

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/archive/reference"
	"github.com/holdfast-io/holdfast/pkg/archive/volumedata"
)

const uploaderKopia velerov1.UploaderType = "kopia"

// fileBackups are the file-system backups that Pods are restored with.
type fileBackups struct {
	claims map[objectName]*volumedata.FileSnapshot
	pods   map[objectName]map[string]*volumedata.FileSnapshot // volumes that are no claims, by pod
	mounts map[objectName][]string                            // claim -> pods that mount it
}

func newFileBackups() fileBackups {
	return fileBackups{
		claims: map[objectName]*volumedata.FileSnapshot{}, pods: map[objectName]map[string]*volumedata.FileSnapshot{}, mounts: map[objectName][]string{},
	}
}

// addBackup keeps a snapshot that can be restored. Of several of one claim it is the first.
func (f *fileBackups) addBackup(d *volumedata.Data) {
	if d.Claim == "" {
		pod := objectName{d.Namespace, d.Pod}
		if f.pods[pod] == nil {
			f.pods[pod] = map[string]*volumedata.FileSnapshot{}
		}
		f.pods[pod][d.PodVolume] = d.Files
		return
	}
	claim := objectName{d.Namespace, d.Claim}
	if f.claims[claim] == nil {
		f.claims[claim] = d.Files
	}
	f.addMount(claim, d.Pod)
}

func (f *fileBackups) addMount(claim objectName, pod string) {
	if pod != "" && !slices.Contains(f.mounts[claim], pod) {
		f.mounts[claim] = append(f.mounts[claim], pod)
	}
}

// findMounts finds the Pods that mount the claims.
func (f *fileBackups) findMounts(items iter.Seq2[manifest.Item, error]) error {
	if len(f.claims) == 0 || items == nil {
		return nil
	}
	for item, err := range items {
		if err != nil {
			return fmt.Errorf("list the items of the backup: %w", err)
		}
		if item.Group != "" || item.Kind != "Pod" {
			continue
		}
		for i := range item.References {
			claim := objectName{item.Namespace, item.References[i].Name}
			if item.References[i].Relation == reference.Claims && f.claims[claim] != nil {
				f.addMount(objectName{strings.Clone(claim.namespace), strings.Clone(claim.name)}, strings.Clone(item.Name))
			}
		}
	}
	return nil
}

// fileProblem is why the data of a PodVolumeBackup is not restored; empty where it is.
func fileProblem(d *volumedata.Data) string {
	switch s := d.Files; {
	case s == nil:
		return "its data is in a PodVolumeBackup, which the backup does not list"
	case s.ID == "":
		return fmt.Sprintf("its PodVolumeBackup is %s and has no snapshot: the backup has no data of it", s.Phase)
	case s.Uploader != uploaderKopia:
		return fmt.Sprintf("its data is in a repository of uploader %q, which this version does not restore", s.Uploader)
	}
	return ""
}

// PodBackup returns the snapshot that a volume of a Pod is filled from, named as in the backup; nil for
// none. claim is empty for a volume that is none.
func (d *Decisions) PodBackup(namespace, pod, volume, claim string) *volumedata.FileSnapshot {
	if s := d.files.claims[objectName{namespace, claim}]; s != nil {
		return s
	}
	return d.files.pods[objectName{namespace, pod}][volume]
}

// Mounts returns the Pods of the backup that mount a claim which is filled with them; false for a claim
// that is not.
func (d *Decisions) Mounts(namespace, claim string) (pods []string, filled bool) {
	at := objectName{namespace, claim}
	return d.files.mounts[at], d.files.claims[at] != nil
}

// PodVolumes returns the volumes of a Pod in the backup that are no claims and have a snapshot, sorted.
func (d *Decisions) PodVolumes(namespace, pod string) (names []string) {
	for name := range d.files.pods[objectName{namespace, pod}] {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// itemsOf lists the items of the backup, if that is needed.
func (t *Taken) itemsOf(ctx context.Context) iter.Seq2[manifest.Item, error] {
	if t.Items == nil {
		return nil
	}
	return t.Items(ctx)
}
