package layout

import (
	"encoding/json"
	"errors"
	"fmt"
)

// Owner is the content of the owner file: which object of which cluster a backup's directory was
// reserved for.
type Owner struct {
	// BackupUID is the UID of the Backup object.
	BackupUID string `json:"backupUID"`
	// ClusterUID is the UID of the cluster's kube-system namespace.
	ClusterUID string `json:"clusterUID"`
}

// MaxOwnerBytes bounds what is read of an owner file.
const MaxOwnerBytes = 64 << 10

// Encode returns the file's bytes.
func (o Owner) Encode() ([]byte, error) { return json.Marshal(o) }

// DecodeOwner reads an owner file; one without a backup UID is an error.
func DecodeOwner(data []byte) (Owner, error) {
	var o Owner
	if err := json.Unmarshal(data, &o); err != nil {
		return Owner{}, fmt.Errorf("owner file: %w", err)
	}
	if o.BackupUID == "" {
		return Owner{}, errors.New("owner file: backupUID is missing")
	}
	return o, nil
}

// RestoreOwner is the content of a restore's owner file: which object of which cluster the records
// beside it belong to.
type RestoreOwner struct {
	// RestoreUID is the UID of the Restore object.
	RestoreUID string `json:"restoreUID"`
	// ClusterUID is the UID of the cluster's kube-system namespace.
	ClusterUID string `json:"clusterUID"`
}

// Encode returns the file's bytes.
func (o RestoreOwner) Encode() ([]byte, error) { return json.Marshal(o) }

// DecodeRestoreOwner reads a restore's owner file; one without both UIDs is an error.
func DecodeRestoreOwner(data []byte) (RestoreOwner, error) {
	var o RestoreOwner
	if err := json.Unmarshal(data, &o); err != nil {
		return RestoreOwner{}, fmt.Errorf("restore owner file: %w", err)
	}
	switch {
	case o.RestoreUID == "":
		return RestoreOwner{}, errors.New("restore owner file: restoreUID is missing")
	case o.ClusterUID == "":
		return RestoreOwner{}, errors.New("restore owner file: clusterUID is missing")
	}
	return o, nil
}
