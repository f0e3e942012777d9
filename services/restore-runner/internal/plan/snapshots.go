package plan

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/apis/velero/v2alpha1"
	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/extension/csisnapshot"
)

// uploadsResource is that of the requests which moved snapshots into the bucket.
var uploadsResource = schema.GroupResource{Group: v2alpha1.GroupVersion.Group, Resource: "datauploads"}

// Snapshots are the CSI snapshots of a backup, and its DataUploads. Safe for concurrent use once it is surveyed.
type Snapshots struct {
	snapshots map[types.NamespacedName]manifest.Item
	uploads   map[types.NamespacedName]manifest.Item
	contents  map[string]manifest.Item
	first     map[string]string                             // name of a snapshot → the first namespace with one
	named     map[types.NamespacedName]types.NamespacedName // claim → its snapshot
}

func newSnapshots() *Snapshots {
	return &Snapshots{
		snapshots: map[types.NamespacedName]manifest.Item{}, uploads: map[types.NamespacedName]manifest.Item{}, contents: map[string]manifest.Item{},
		first: map[string]string{}, named: map[types.NamespacedName]types.NamespacedName{},
	}
}

func (s *Snapshots) takeItem(item *manifest.Item, gr schema.GroupResource) {
	if !item.Preferred {
		return
	}
	switch {
	case gr == csisnapshot.Snapshots:
		s.snapshots[types.NamespacedName{Namespace: item.Namespace, Name: item.Name}] = *item
		if first, ok := s.first[item.Name]; !ok || item.Namespace < first {
			s.first[item.Name] = item.Namespace
		}
	case gr == uploadsResource:
		s.uploads[types.NamespacedName{Namespace: item.Namespace, Name: item.Name}] = *item
	case gr == csisnapshot.Contents:
		s.contents[item.Name] = *item
	case gr.String() == claimsResource && item.Labels[velerov1.LabelVolumeSnapshotName] != "":
		namespace := strings.Clone(item.Namespace)
		s.named[types.NamespacedName{Namespace: namespace, Name: strings.Clone(item.Name)}] = types.NamespacedName{
			Namespace: namespace, Name: strings.Clone(item.Labels[velerov1.LabelVolumeSnapshotName])}
	}
}

// Claims returns the claims that name a VolumeSnapshot which is in the backup, sorted. The label that
// names it may be left from a restore: such a one is in no later backup.
func (s *Snapshots) Claims() []types.NamespacedName {
	var all []types.NamespacedName
	for claim, snapshot := range s.named {
		if _, ok := s.snapshots[snapshot]; ok {
			all = append(all, claim)
		}
	}
	slices.SortFunc(all, func(a, b types.NamespacedName) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// Snapshot returns a VolumeSnapshot of the backup.
func (s *Snapshots) Snapshot(name types.NamespacedName) (manifest.Item, bool) {
	item, ok := s.snapshots[name]
	return item, ok
}

// Upload returns a DataUpload of the backup.
func (s *Snapshots) Upload(name types.NamespacedName) (manifest.Item, bool) {
	item, ok := s.uploads[name]
	return item, ok
}

// Content returns a VolumeSnapshotContent of the backup.
func (s *Snapshots) Content(name string) (manifest.Item, bool) {
	item, ok := s.contents[name]
	return item, ok
}

// First reports that no namespace which comes before in the alphabet has a VolumeSnapshot of that
// name.
func (s *Snapshots) First(name types.NamespacedName) bool {
	return s.first[name.Name] == name.Namespace
}
