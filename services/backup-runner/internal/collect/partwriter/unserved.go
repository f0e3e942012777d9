package partwriter

import (
	"fmt"
	"strings"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/kube/objmeta"
)

// unservedMessages lists the messages about what a pod's annotations ask for and this version does not do: one for each volume.
func unservedMessages(annotations objmeta.Pairs) []string {
	var out []string
	for volume := range strings.SplitSeq(annotations.Get(velerov1.AnnotationBackupVolumes), ",") {
		if volume = strings.TrimSpace(volume); volume != "" {
			out = append(out, fmt.Sprintf("annotation %s asks for the data of volume %q, which is not supported yet: it was not taken",
				velerov1.AnnotationBackupVolumes, volume))
		}
	}
	return out
}
