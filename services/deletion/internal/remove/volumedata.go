package remove

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/apis/velero/v2alpha1"
	"github.com/holdfast-io/holdfast/pkg/archive/volumedata"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// annotationRefused on a processed request means that it was refused for volume data, and would be
// again.
const (
	annotationRefused = "holdfast.io/deletion-refused"
	refusedVolumeData = "volume-data"
)

// volumeDataError is a backup with volume data that would be left behind.
type volumeDataError struct{ text string }

// Error implements error.
func (e *volumeDataError) Error() string { return e.text }

// allowsLeftData reports whether an annotation allows that data of volumes is left behind.
func allowsLeftData(objects ...metav1.Object) bool {
	for _, o := range objects {
		if o.GetAnnotations()[holdfast.AnnotationLeaveVolumeData] == "true" {
			return true
		}
	}
	return false
}

// PermanentlyRefused reports of a processed request that another one for the backup would be
// refused for the same reason.
func PermanentlyRefused(req *velerov1.DeleteBackupRequest, backup *velerov1.Backup) bool {
	return req.Annotations[annotationRefused] == refusedVolumeData && !allowsLeftData(backup)
}

// admitVolumeData returns a *volumeDataError when the backup has volume data that cannot be
// removed. Where that cannot be read now, the removal of the data checks it again before it removes
// anything.
func (j *deletionJob) admitVolumeData(ctx context.Context) error {
	store, err := j.remover.Locations.Open(ctx, j.location)
	if err != nil {
		return nil //nolint:nilerr // the removal checks again
	}
	defer func() {
		if err := store.Close(); err != nil {
			j.remover.Log.WarnContext(ctx, "Failed to close bucket", "error", err)
		}
	}()
	own, _, err := ownsDirectory(ctx, store, j)
	if err != nil || !own {
		return nil //nolint:nilerr // as above
	}
	var left *volumeDataError
	if err := j.keepsVolumeData(ctx, store); errors.As(err, &left) {
		return left
	}
	return nil
}

// keepsVolumeData returns a *volumeDataError when the backup, whose directory this is, has volume
// data that nothing here can remove, and another error when that is unknown. It reads once for
// each attempt, and not where an earlier attempt has begun to remove.
func (j *deletionJob) keepsVolumeData(ctx context.Context, store objectstore.Reader) error {
	if j.checked || allowsLeftData(j.backup, j.request) {
		return nil
	}
	if j.resumed { // the annotations of the Backup are not known any more
		untouched, err := objectstore.Exists(ctx, store, layout.BackupTarball(j.backup.Name))
		if err != nil || !untouched {
			return err
		}
	}
	served, err := j.removesCSI(ctx)
	if err != nil {
		return err
	}
	found := volumeTally{seen: map[string]bool{}}
	j.files = snapshotSet{}
	if err = j.addMoverVolumes(ctx, &found); err == nil { // first: a DataUpload may be the only one to name its snapshot
		err = volumedata.Each(ctx, store, j.backup.Name, func(d volumedata.Data) error {
			j.tallyVolume(&found, d, served)
			return nil
		})
	}
	if err != nil {
		return fmt.Errorf("cannot tell whether the backup has volume data that would be left behind: %w", err)
	}
	if text := found.String(); text != "" {
		return &volumeDataError{fmt.Sprintf("the backup has volume data that this version cannot remove: %s; nothing is deleted. "+
			"With the annotation %s: \"true\" on the Backup it is deleted, and that data stays where it is", text, holdfast.AnnotationLeaveVolumeData)}
	}
	j.checked = true
	return nil
}

// tallyVolume counts a volume whose data cannot be removed. The list of operations names moved data without its snapshot: the claim
// does not count where that is known.
func (j *deletionJob) tallyVolume(t *volumeTally, d volumedata.Data, served bool) {
	switch {
	case j.countsAsLeft(&d, served):
		t.addVolume(d)
	case d.Method == volumedata.DataUpload && d.Files.ID != "":
		t.seen[d.String()] = true
	}
}

// isMoving reports whether a mover has a request of a phase.
func isMoving(phase velerov1.PodVolumePhase) bool {
	switch phase {
	case "", velerov1.PodVolumePhaseNew, velerov1.PodVolumePhaseCompleted, velerov1.PodVolumePhaseFailed, velerov1.PodVolumePhaseCanceled:
		return false
	}
	return true
}

// belongsToBackup reports whether an object is labelled as this backup's, and not another one's of the same
// name.
func belongsToBackup(o metav1.Object, b *velerov1.Backup) bool {
	uid := o.GetLabels()[velerov1.LabelBackupUID]
	return uid == "" || uid == string(b.UID)
}

// notServed makes the absence of a kind the absence of its objects.
func notServed(err error) error {
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// volumeTally counts volumes with data, each once.
type volumeTally struct {
	seen    map[string]bool
	counts  map[volumedata.Method]int
	unnamed int // CSI snapshots whose claim is not known: other files may count them
	first   []string
}

func (t *volumeTally) addVolume(d volumedata.Data) {
	if !d.Stored {
		return
	}
	if d.Snapshot != "" && d.Claim == "" {
		t.unnamed++
		return
	}
	name := d.String()
	if t.seen[name] {
		return
	}
	t.seen[name] = true
	if t.counts == nil {
		t.counts = map[volumedata.Method]int{}
	}
	t.counts[d.Method]++
	if len(t.first) < maxNamed {
		t.first = append(t.first, name)
	}
}

// addMoverVolumes adds the volumes of the objects that data movers serve: a backup that failed early has no files. One
// that a mover works on is an error, since it may store something yet.
func (j *deletionJob) addMoverVolumes(ctx context.Context, t *volumeTally) error {
	reader, namespace, b := j.remover.Reader, j.remover.Namespace, j.backup
	of := []client.ListOption{client.InNamespace(namespace), client.MatchingLabels{velerov1.LabelBackupName: velerov1.LabelValue(b.Name)}}
	var pods velerov1.PodVolumeBackupList
	if err := reader.List(ctx, &pods, of...); notServed(err) != nil {
		return fmt.Errorf("list PodVolumeBackups: %w", err)
	}
	for i := range pods.Items {
		p := &pods.Items[i]
		if !belongsToBackup(p, b) {
			continue
		}
		if err := j.addRequest(t, p.Name, volumedata.OfPodVolumeBackup(p)); err != nil {
			return err
		}
	}
	var uploads v2alpha1.DataUploadList
	if err := reader.List(ctx, &uploads, of...); notServed(err) != nil {
		return fmt.Errorf("list DataUploads: %w", err)
	}
	for i := range uploads.Items {
		if u := &uploads.Items[i]; belongsToBackup(u, b) {
			if err := j.addRequest(t, u.Name, volumedata.OfDataUpload(u)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (j *deletionJob) addRequest(t *volumeTally, name string, d volumedata.Data) error {
	if j.isForgettable(&d) && isMoving(d.Files.Phase) {
		return fmt.Errorf("%s %s is %s", d.Method, name, d.Files.Phase)
	}
	j.tallyVolume(t, d, false)
	return nil
}

// methods are what is counted, with the names for one and for many.
var methods = []struct {
	method    volumedata.Method
	one, many string
}{
	{volumedata.CSISnapshot, "CSI snapshot", "CSI snapshots"},
	{volumedata.PodVolumeBackup, "PodVolumeBackup", "PodVolumeBackups"},
	{volumedata.DataUpload, "DataUpload", "DataUploads"},
}

// String returns the counts and some names; empty when there is no data.
func (t *volumeTally) String() string {
	var counts []string
	for _, m := range methods {
		n := t.counts[m.method]
		if m.method == volumedata.CSISnapshot {
			n = max(n, t.unnamed)
		}
		switch n {
		case 0:
		case 1:
			counts = append(counts, "1 "+m.one)
		default:
			counts = append(counts, fmt.Sprintf("%d %s", n, m.many))
		}
	}
	text := strings.Join(counts, ", ")
	if len(t.first) > 0 {
		text += " (such as " + strings.Join(t.first, ", ") + ")"
	}
	return text
}
