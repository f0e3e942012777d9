package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the API group of every kind Velero defines.
const GroupName = "velero.io"

// GroupVersion is the group and version of the types in this package.
var GroupVersion = schema.GroupVersion{Group: GroupName, Version: "v1"}

// SchemeBuilder collects the registration of this package's kinds.
var SchemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

// AddToScheme registers every kind of this package, with its list, in a scheme.
var AddToScheme = SchemeBuilder.AddToScheme

func addKnownTypes(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&Backup{}, &BackupList{},
		&Restore{}, &RestoreList{},
		&Schedule{}, &ScheduleList{},
		&BackupStorageLocation{}, &BackupStorageLocationList{},
		&VolumeSnapshotLocation{}, &VolumeSnapshotLocationList{},
		&DeleteBackupRequest{}, &DeleteBackupRequestList{},
		&DownloadRequest{}, &DownloadRequestList{},
		&ServerStatusRequest{}, &ServerStatusRequestList{},
		&PodVolumeBackup{}, &PodVolumeBackupList{},
		&PodVolumeRestore{}, &PodVolumeRestoreList{},
		&BackupRepository{}, &BackupRepositoryList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
