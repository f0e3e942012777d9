package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// volumes answers from what it is given, and writes what it was asked to change into the file that
// its location's config names.
type volumes struct{ zone, calls string }

func (v *volumes) Init(config map[string]string) error {
	v.zone, v.calls = config["zone"], config["calls"]
	return nil
}

// called adds a line to the file.
func (v *volumes) called(format string, args ...any) error {
	if v.calls == "" {
		return nil
	}
	f, err := os.OpenFile(v.calls, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, format+"\n", args...)
	return errors.Join(err, f.Close())
}

func (v *volumes) CreateVolumeFromSnapshot(snapshotID, volumeType, volumeAZ string, iops *int64) (string, error) {
	rate := "none"
	if iops != nil {
		rate = fmt.Sprint(*iops)
	}
	return strings.Join([]string{snapshotID, volumeType, volumeAZ, rate, v.zone}, ","),
		v.called("volume from %s: %s in %s at %s", snapshotID, volumeType, volumeAZ, rate)
}

func (v *volumes) GetVolumeInfo(string, string) (string, *int64, error) {
	iops := int64(5)
	return "fast", &iops, nil
}

func (v *volumes) CreateSnapshot(volumeID, volumeAZ string, tags map[string]string) (string, error) {
	return strings.Join([]string{volumeID, volumeAZ, tags["k"]}, ","),
		v.called("snapshot of %s in %s for %s of %s", volumeID, volumeAZ, tags["velero.io/backup"], tags["velero.io/pv"])
}

func (v *volumes) DeleteSnapshot(id string) error {
	if id == "snap" {
		return errors.New("snapshot is in use")
	}
	return v.called("no snapshot %s", id)
}

// idAnnotation is where volumes of this provider have their ID.
const idAnnotation = "velerofw.io/volume"

func (v *volumes) GetVolumeID(pv runtime.Unstructured) (string, error) {
	u := &unstructured.Unstructured{Object: pv.UnstructuredContent()}
	if id := u.GetAnnotations()[idAnnotation]; id != "" {
		return id, nil
	}
	return "id of " + u.GetName(), nil
}

func (v *volumes) SetVolumeID(pv runtime.Unstructured, volumeID string) (runtime.Unstructured, error) {
	return mark(pv, "volume", volumeID), nil
}
