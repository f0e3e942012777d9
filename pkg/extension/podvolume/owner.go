package podvolume

import (
	"encoding/json"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// jobOwner is what of a Backup or Restore tells its requests.
type jobOwner struct {
	Metadata struct {
		Name string `json:"name"`
		UID  string `json:"uid"`
	} `json:"metadata"`
}

func decodeOwner(job []byte) (o jobOwner, err error) {
	if err := json.Unmarshal(job, &o); err != nil {
		return o, fmt.Errorf("decode the job: %w", err)
	}
	return o, nil
}

// ownsRequest reports whether a request of an action is labelled as the job's.
func (o *jobOwner) ownsRequest(action string, request client.Object) bool {
	label := velerov1.LabelBackupUID
	if isOfRestore(action) {
		label = velerov1.LabelRestoreUID
	}
	return o.Metadata.UID != "" && request.GetLabels()[label] == o.Metadata.UID
}
