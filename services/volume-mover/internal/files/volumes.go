package files

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-io/holdfast/pkg/archive/volumedata"
	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	volumev1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/volume/v1"
)

// maxNamed is how many volumes an error names.
const maxNamed = 10

// findVolumes returns the selected volumes of the backup that have files, in order.
func (r *Reader) findVolumes(ctx context.Context) ([]*volumev1.Volume, error) {
	matching, others, err := volumedata.FindFiles(ctx, r.Location, r.Backup, func(d volumedata.Data) bool { return matchesSelector(r.Volume, d) })
	if err != nil {
		return nil, fmt.Errorf("volumes of backup %q: %w", r.Backup, err)
	}
	if len(matching) == 0 && len(others) > 0 {
		names := make([]string, len(others))
		for i, d := range others {
			names[i] = d.String()
		}
		return nil, fmt.Errorf("the backup has no files of the volume, but %s: %w", listNames(names), errgrpc.ErrNotFound)
	}
	found := make([]*volumev1.Volume, len(matching))
	for i, d := range matching {
		found[i] = &volumev1.Volume{Namespace: d.Namespace, Claim: d.Claim, Pod: d.Pod, PodVolume: d.PodVolume, SnapshotId: d.Files.ID, Size: d.Files.Size}
	}
	slices.SortFunc(found, func(a, b *volumev1.Volume) int { return strings.Compare(nameVolume(a), nameVolume(b)) })
	return found, nil
}

// findVolume returns the one volume that is selected.
func (r *Reader) findVolume(ctx context.Context) (*volumev1.Volume, error) {
	found, err := r.findVolumes(ctx)
	switch {
	case err != nil:
		return nil, err
	case len(found) == 0:
		return nil, fmt.Errorf("a volume of that name with files in backup %q: %w", r.Backup, errgrpc.ErrNotFound)
	case len(found) > 1:
		names := make([]string, len(found))
		for i, v := range found {
			names[i] = nameVolume(v)
		}
		return nil, errgrpc.Field("volume", "several match, name one with its namespace: %s", listNames(names))
	}
	return found[0], nil
}

func matchesSelector(s *volumev1.VolumeSelector, d volumedata.Data) bool {
	matches := func(want, have string) bool { return want == "" || want == have }
	return matches(s.GetNamespace(), d.Namespace) && matches(s.GetClaim(), d.Claim) && matches(s.GetPod(), d.Pod) && matches(s.GetPodVolume(), d.PodVolume)
}

// nameVolume names a volume as the command line does.
func nameVolume(v *volumev1.Volume) string {
	if v.GetClaim() != "" {
		return fmt.Sprintf("%s in namespace %s", v.GetClaim(), v.GetNamespace())
	}
	return fmt.Sprintf("%s/%s in namespace %s", v.GetPod(), v.GetPodVolume(), v.GetNamespace())
}

func listNames(names []string) string {
	names = slices.Compact(names)
	if more := len(names) - maxNamed; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNamed], ", "), more)
	}
	return strings.Join(names, ", ")
}
