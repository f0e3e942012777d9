package validate

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

const fieldSnapshotLocations = "spec.volumeSnapshotLocations"

// snapshotLocations replaces the names that a backup gives with all the locations whose providers
// are asked for snapshots: at most one of each provider, also when no snapshots are wanted (Velero
// 1.18), but of several that have no default none then. A backup that insists on snapshots needs one, unless CSI snapshots are on: those need no
// location, and a volume of another kind is an error of the backup.
func (v *Validator) snapshotLocations(ctx context.Context, b *velerov1.Backup, problems *Problems) error {
	byProvider, err := v.snapshotProviders(ctx)
	if err != nil {
		return err
	}
	chosen := map[string]string{}
	for _, name := range b.Spec.VolumeSnapshotLocations {
		provider, found := providerOf(byProvider, name)
		switch other := chosen[provider]; {
		case !found:
			problems.addProblem(fieldSnapshotLocations, "volume snapshot location %q not found", name)
		case other != "" && other != name:
			problems.addProblem(fieldSnapshotLocations, "%q and %q are both of provider %q: at most one location per provider is possible", other, name, provider)
		default:
			chosen[provider] = name
		}
	}
	for _, provider := range slices.Sorted(maps.Keys(byProvider)) {
		names := byProvider[provider]
		if chosen[provider] != "" {
			continue
		}
		if len(names) == 1 {
			chosen[provider] = names[0]
			continue
		}
		if !ptr.Deref(b.Spec.SnapshotVolumes, true) {
			continue // of several none is needed
		}
		switch main := v.Defaults.SnapshotLocations[provider]; {
		case main == "":
			problems.addProblem(fieldSnapshotLocations, "provider %q has the locations %s and no default: name one of them here, or in --default-volume-snapshot-locations",
				provider, strings.Join(names, ", "))
		case !slices.Contains(names, main):
			problems.addProblem(fieldSnapshotLocations, "the default location %q of provider %q not found", main, provider)
		default:
			chosen[provider] = main
		}
	}
	if len(chosen) > 0 {
		b.Spec.VolumeSnapshotLocations = slices.Sorted(maps.Values(chosen))
	} else if ptr.Deref(b.Spec.SnapshotVolumes, false) && !v.CSI {
		problems.addProblem("spec.snapshotVolumes", "there is no VolumeSnapshotLocation to take snapshots with, and CSI snapshots are off: create one, or set --features EnableCSI")
	}
	if ptr.Deref(b.Spec.SnapshotMoveData, false) && !v.CSI {
		problems.addProblem("spec.snapshotMoveData", "CSI snapshots, whose data it moves, are off: set --features EnableCSI")
	}
	return nil
}

func providerOf(byProvider map[string][]string, name string) (string, bool) {
	for provider, names := range byProvider {
		if slices.Contains(names, name) {
			return provider, true
		}
	}
	return "", false
}

// snapshotProviders returns the names of the snapshot locations by provider, sorted. They must not
// be changed.
func (v *Validator) snapshotProviders(ctx context.Context) (map[string][]string, error) {
	return cachedValue(v, "volume snapshot locations", func() (map[string][]string, error) {
		list := &velerov1.VolumeSnapshotLocationList{}
		if err := v.Reader.List(ctx, list, client.InNamespace(v.Namespace)); err != nil {
			return nil, fmt.Errorf("list volume snapshot locations: %w", err)
		}
		found := map[string][]string{}
		for i := range list.Items {
			l := &list.Items[i]
			found[l.Spec.Provider] = append(found[l.Spec.Provider], l.Name)
		}
		for _, names := range found {
			slices.Sort(names)
		}
		return found, nil
	})
}
