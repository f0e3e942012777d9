package volumes

import (
	"slices"

	"github.com/holdfast-io/holdfast/pkg/archive/volumedata"
)

// lostData is volume data that does not come back, by what it is restored with.
type lostData struct {
	filled    map[objectName]filling           // claims that are filled from their snapshot
	claims    map[objectName]string            // problems
	pods      map[objectName]map[string]string // problems by volume of the pod
	snapshots []string                         // CSI snapshots whose claim no file names
}

// filling is what a claim is filled from.
type filling int

const (
	fromCSI   filling = iota + 1 // its CSI snapshot
	fromMoved                    // its CSI snapshot, whose data was moved into the bucket
)

// objectName is an object's in the backup.
type objectName struct{ namespace, name string }

const newVolume = ": the claim gets a new, empty volume"

// notRestored is the message about a CSI snapshot that is not restored.
func (t *Taken) notRestored() string {
	why := "this server does not restore (--features EnableCSI is off)"
	if t.CSI {
		why = "the claim in the backup does not name"
	}
	return "its data is in a CSISnapshot, which " + why + newVolume
}

// newLostData sorts data by claim, or by pod where no claim is named. Snapshots count only where
// volumes are to be restored; what is in a file system backup is restored with the pod in any case
// (Velero 1.18).
func newLostData(from *Taken, restorePVs bool, files *fileBackups) lostData {
	l := lostData{filled: map[objectName]filling{}, claims: map[objectName]string{}, pods: map[objectName]map[string]string{}}
	data := from.Elsewhere
	for _, s := range from.Snapshotted {
		data = append(data[:len(data):len(data)], volumedata.Data{Method: volumedata.CSISnapshot, Namespace: s.Namespace, Claim: s.Name})
		if from.CSI && restorePVs {
			l.filled[objectName{s.Namespace, s.Name}] = fromCSI
		}
	}
	for i := range from.Infos {
		if info := &from.Infos[i]; info.DataMoved {
			data = append(data[:len(data):len(data)], volumedata.Data{Method: volumedata.DataUpload, Namespace: info.Namespace, Claim: info.Claim})
		}
	}
	named := map[string]bool{} // namespaces with snapshots of known claims
	for _, d := range data {
		if d.Claim != "" && d.Method != volumedata.PodVolumeBackup {
			named[d.Namespace] = true
		}
	}
	for _, d := range data {
		pods := d.Method == volumedata.PodVolumeBackup
		switch {
		case !pods && !restorePVs:
		case d.Claim != "" && d.Method == volumedata.DataUpload:
			l.filled[objectName{d.Namespace, d.Claim}] = fromMoved
			delete(l.claims, objectName{d.Namespace, d.Claim})
		case d.Claim != "" && l.filled[objectName{d.Namespace, d.Claim}] != 0:
		case pods:
			l.addFiles(d, files)
		case d.Claim != "":
			l.claims[objectName{d.Namespace, d.Claim}] = from.notRestored()
		case d.Snapshot != "" && !named[d.Namespace]:
			l.snapshots = append(l.snapshots, d.Namespace+"/"+d.Snapshot)
		}
	}
	for claim := range files.claims {
		delete(l.claims, claim)
	}
	slices.Sort(l.snapshots)
	l.snapshots = slices.Compact(l.snapshots)
	return l
}

// addFiles sorts a PodVolumeBackup.
func (l *lostData) addFiles(d volumedata.Data, files *fileBackups) {
	problem := fileProblem(&d)
	switch {
	case problem == "":
		files.addBackup(&d)
	case d.Claim != "":
		l.claims[objectName{d.Namespace, d.Claim}] = problem + newVolume
	default:
		pod := objectName{d.Namespace, d.Pod}
		if l.pods[pod] == nil {
			l.pods[pod] = map[string]string{}
		}
		l.pods[pod][d.PodVolume] = problem
	}
}

// reconcileVolume makes volume and claim agree. A volume that comes back by what is known of it brings
// its claim's data; one of which nothing is known, and of whose claim there is data elsewhere, does
// not come back (Velero 1.18).
func (l *lostData) reconcileVolume(volume *restoreDecision, known bool, files *fileBackups) {
	claim := objectName{volume.claimSpace, volume.claim}
	problem, has := l.claims[claim]
	has = has || files.claims[claim] != nil
	switch {
	case l.filled[claim] != 0 && volume.snapshot == nil:
		volume.recorded, volume.reprovision, volume.problem = true, true, problem
	case l.filled[claim] != 0: // the volume comes back with its native snapshot
		delete(l.filled, claim)
	case !has:
	case !known:
		volume.recorded, volume.reprovision, volume.problem = true, true, problem
	case !volume.reprovision:
		delete(l.claims, claim)
		delete(files.claims, claim)
	}
}

// Filled reports that a claim, named as in the backup, gets a new volume that is filled from its CSI
// snapshot, moved or not.
func (d *Decisions) Filled(namespace, claim string) bool {
	return d.lost.filled[objectName{namespace, claim}] != 0
}

// isMoved reports that such a claim is filled from the bucket.
func (d *Decisions) isMoved(namespace, claim string) bool {
	return d.lost.filled[objectName{namespace, claim}] == fromMoved
}

// ClaimProblem returns why the data of a claim, named as in the backup, is not restored although it
// was backed up; "" when nothing is known to be lost.
func (d *Decisions) ClaimProblem(namespace, claim string) string {
	return d.lost.claims[objectName{namespace, claim}]
}

// PodProblems does so for the volumes of a pod that are no claims, or whose claims the backup does
// not name, by the volume's name.
func (d *Decisions) PodProblems(namespace, pod string) map[string]string {
	return d.lost.pods[objectName{namespace, pod}]
}

// Unclaimed returns the CSI snapshots, as namespace/name, whose claim no file of the backup names.
func (d *Decisions) Unclaimed() []string { return d.lost.snapshots }
