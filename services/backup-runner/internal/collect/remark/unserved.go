package remark

import (
	"fmt"
	"slices"
	"strings"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/kube/objmeta"
)

// hookPrefixes are the annotations that ask for a hook around a pod's backup.
var hookPrefixes = []string{
	velerov1.AnnotationPreBackupHookPrefix, velerov1.AnnotationPostBackupHookPrefix, velerov1.AnnotationBackupHookPrefix,
}

// unserved lists the messages about what a pod's annotations ask for and this version does not do:
// one for each hook, one for each volume.
func unserved(annotations objmeta.Pairs) []string {
	var out []string
	for _, prefix := range hookPrefixes {
		var set []string
		for _, a := range annotations {
			if strings.HasPrefix(a.Key, prefix) {
				set = append(set, a.Key)
			}
		}
		if len(set) == 0 {
			continue
		}
		slices.Sort(set)
		name := set[0]
		if slices.Contains(set, prefix+"command") {
			name = prefix + "command"
		}
		out = append(out, fmt.Sprintf("annotation %s asks for a hook, which is not supported yet: it was not run", name))
	}
	for volume := range strings.SplitSeq(annotations.Get(velerov1.AnnotationBackupVolumes), ",") {
		if volume = strings.TrimSpace(volume); volume != "" {
			out = append(out, fmt.Sprintf("annotation %s asks for the data of volume %q, which is not supported yet: it was not taken",
				velerov1.AnnotationBackupVolumes, volume))
		}
	}
	return out
}
