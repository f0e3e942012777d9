package location

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/filestore"
)

// configPath is the one config key of file locations.
const configPath = "path"

// openFile opens the directory spec.objectStorage.bucket in the directory spec.config.path.
func openFile(loc *velerov1.BackupStorageLocation, p bucketPlace) (objectstore.Store, error) {
	for _, key := range slices.Sorted(maps.Keys(loc.Spec.Config)) {
		if key != configPath {
			return nil, errgrpc.Field("spec.config["+key+"]", "unknown key; file locations have only %q", configPath)
		}
	}
	dir := loc.Spec.Config[configPath]
	if !filepath.IsAbs(dir) {
		return nil, errgrpc.Field("spec.config["+configPath+"]", "must be the absolute path of a directory, is %q", dir)
	}
	if loc.Spec.Credential != nil {
		return nil, errgrpc.Field("spec.credential", "file locations have no credentials")
	}
	if len(loc.Spec.ObjectStorage.CACert) > 0 || loc.Spec.ObjectStorage.CACertRef != nil {
		return nil, errgrpc.Field("spec.objectStorage", "file locations have no certificates (caCert, caCertRef)")
	}
	store, err := filestore.Open(filepath.Join(dir, p.bucket))
	if err != nil {
		return nil, fmt.Errorf("spec.objectStorage.bucket: %w", err)
	}
	return store, nil
}
