package holdfast

import (
	"maps"
	"slices"
	"strings"
)

// known are all annotations of Holdfast, of any kind of object, and those that carry traces.
var known = []string{
	AnnotationClaim, AnnotationQueueSequence, AnnotationNamespaces, AnnotationPriority, AnnotationOperations, AnnotationPlan, AnnotationPlanStrict,
	AnnotationDryRun, AnnotationPlanDifferences, AnnotationCancel, AnnotationCommitting, AnnotationValidated, AnnotationWaits,
	AnnotationPaused, AnnotationFilesLocation, AnnotationPostHooks, AnnotationTarballBytes, AnnotationVerified, AnnotationIgnoreRunning, AnnotationOrder,
	AnnotationRunAgain, AnnotationRunningJobs, AnnotationPreserveAddresses, AnnotationItems, AnnotationItemsWith, AnnotationFiles, AnnotationSpreadWindow,
	AnnotationConcurrencyPolicy, AnnotationPendingSlot, AnnotationActiveSchedule, AnnotationCatchUp, AnnotationSkipDeleteActions,
	AnnotationLeaveVolumeData, AnnotationOverwriteVolumes, AnnotationDefault, AnnotationWithdrawn, AnnotationObjectStore, AnnotationMaintenanceStopped,
	Prefix + "traceparent", Prefix + "attempt-traceparent", AnnotationAddress,
}

// UnknownAnnotations returns the keys with Holdfast's prefix that are none of its annotations, sorted: what they
// ask for would not be done.
func UnknownAnnotations(annotations map[string]string) (keys []string) {
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		if strings.HasPrefix(key, Prefix) && !slices.Contains(known, key) {
			keys = append(keys, key)
		}
	}
	return keys
}
