package volumedata

import (
	"cmp"
	"context"
	"slices"

	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// FindFiles returns the volumes of a backup that have files in a repository of kopia, of those that match. What several
// files of the backup list of one snapshot is merged. Others match and have no such files; their Files are nil.
func FindFiles(ctx context.Context, store objectstore.Reader, backup string, matches func(Data) bool) (found, others []Data, err error) {
	err = Each(ctx, store, backup, func(d Data) error {
		switch {
		case !matches(d):
		case d.Files == nil || d.Files.ID == "" || cmp.Or(d.Files.Uploader, uploaderKopia) != uploaderKopia:
			d.Files = nil
			others = append(others, d)
		default:
			found = mergeFiles(found, d)
		}
		return nil
	})
	return found, others, err
}

// mergeFiles adds a volume, or what another file of the backup says of it.
func mergeFiles(found []Data, d Data) []Data {
	i := slices.IndexFunc(found, func(v Data) bool { return v.Files.ID == d.Files.ID })
	if i < 0 {
		return append(found, d)
	}
	v, f := &found[i], found[i].Files
	v.Claim, v.Pod, v.PodVolume = cmp.Or(v.Claim, d.Claim), cmp.Or(v.Pod, d.Pod), cmp.Or(v.PodVolume, d.PodVolume)
	f.Phase, f.Size, f.ClaimUID = cmp.Or(f.Phase, d.Files.Phase), cmp.Or(f.Size, d.Files.Size), cmp.Or(f.ClaimUID, d.Files.ClaimUID)
	return found
}
