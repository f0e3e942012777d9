package validate

import (
	"errors"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
	"github.com/holdfast-io/holdfast/pkg/spec/hook"
	"github.com/holdfast-io/holdfast/pkg/spec/selection"
)

// builtInDataMover is the other name of Velero's default data mover.
const builtInDataMover = "velero"

// existingPolicies are the known values of spec.existingResourcePolicy.
var existingPolicies = []velerov1.PolicyType{"", velerov1.PolicyTypeNone, velerov1.PolicyTypeUpdate}

// BackupSpec finds what is wrong with a spec alone: no cluster is asked.
func BackupSpec(spec *velerov1.BackupSpec) Problems {
	var p Problems
	for _, bad := range hook.CheckBackup(&spec.Hooks) {
		p.addProblem(bad.Field, "%s", bad.Message)
	}
	p.addUnsupported(spec.ResourcePolicy != nil, "spec.resourcePolicy")
	p.addUnsupported(len(spec.OrderedResources) > 0, "spec.orderedResources")
	p.addUnsupported(spec.DataMover != "" && spec.DataMover != builtInDataMover, "spec.datamover")
	p.addUnsupported(!slices.Contains([]string{"", velerov1.LabelVolumeGroup}, spec.VolumeGroupSnapshotLabelKey), "spec.volumeGroupSnapshotLabelKey")
	for _, d := range []struct {
		field string
		value int64
	}{
		{"spec.ttl", int64(spec.TTL.Duration)},
		{"spec.csiSnapshotTimeout", int64(spec.CSISnapshotTimeout.Duration)},
		{"spec.itemOperationTimeout", int64(spec.ItemOperationTimeout.Duration)},
	} {
		if d.value < 0 {
			p.addProblem(d.field, "must not be negative")
		}
	}
	if c := spec.UploaderConfig; c != nil && c.ParallelFilesUpload < 0 {
		p.addProblem("spec.uploaderConfig.parallelFilesUpload", "must not be negative")
	}
	p.checkSize("spec.includedNamespaces", spec.IncludedNamespaces)
	p.checkSize("spec.excludedNamespaces", spec.ExcludedNamespaces)
	p.checkFilters(backupFilters(spec))
	return p
}

// RestoreSpec finds what is wrong with a spec alone: no cluster is asked.
func RestoreSpec(spec *velerov1.RestoreSpec) Problems {
	var p Problems
	for _, bad := range hook.CheckRestore(&spec.Hooks) {
		p.addProblem(bad.Field, "%s", bad.Message)
	}
	p.addUnsupported(spec.ResourceModifier != nil, "spec.resourceModifier")
	p.addUnsupported(spec.RestoreStatus != nil, "spec.restoreStatus")
	if !slices.Contains(existingPolicies, spec.ExistingResourcePolicy) {
		p.addProblem("spec.existingResourcePolicy", "%q is none of none and update", spec.ExistingResourcePolicy)
	}
	if spec.ItemOperationTimeout.Duration < 0 {
		p.addProblem("spec.itemOperationTimeout", "must not be negative")
	}
	for _, r := range spec.IncludedResources {
		if slices.Contains(selection.NonRestorable, r) {
			p.addProblem("", "spec.includedResources: %s are non-restorable resources", r)
		}
	}
	if (spec.BackupName == "") == (spec.ScheduleName == "") {
		p.addProblem("", "spec.backupName, spec.scheduleName: exactly one of them must be set")
	}
	for from, to := range spec.NamespaceMapping {
		if from == "" || to == "" || selection.CheckPattern(to) != nil || selection.IsPattern(to) {
			p.addProblem("spec.namespaceMapping", "%q to %q is not a mapping between namespace names", from, to)
		}
	}
	p.checkFilters(restoreFilters(spec))
	return p
}

// checkSize bounds a list of namespaces: what is admitted is stored in the ledger.
func (p *Problems) checkSize(field string, names []string) {
	if size := ledger.Size(names); size > ledger.MaxNamespaces {
		p.addProblem(field, "%d namespaces take %d bytes, at most %d can be admitted", len(names), size, ledger.MaxNamespaces)
	}
}

// checkFilters adds the problems of the filter fields; those of lists are worded and prefixed as
// Velero's users know them.
func (p *Problems) checkFilters(spec selection.Spec) {
	for _, message := range spec.Validate() {
		p.addProblem("", "%s", message)
	}
	_, err := spec.Selectors()
	var bad *selection.SelectorError
	switch {
	case errors.As(err, &bad):
		p.addProblem("spec."+bad.Field, "%v", bad.Err)
	case err != nil:
		p.addProblem("", "spec.labelSelector, spec.orLabelSelectors: %v", err)
	}
}

// checkAnnotations finds unknown annotations of Holdfast, an invalid priority, and a claim that no runner
// can read, with which the object would count as running without end.
func (p *Problems) checkAnnotations(annotations map[string]string) {
	for _, key := range holdfast.UnknownAnnotations(annotations) {
		p.addProblem("metadata.annotations["+key+"]", "Holdfast has no such annotation")
	}
	if _, _, err := claim.Parse(&metav1.ObjectMeta{Annotations: annotations}); err != nil {
		p.addProblem("metadata.annotations["+holdfast.AnnotationClaim+"]", "%v", err)
	}
	if _, err := PriorityOf(annotations); err != nil {
		p.addProblem("metadata.annotations["+holdfast.AnnotationPriority+"]", "%v", err)
	}
	for _, key := range []string{holdfast.AnnotationPlanStrict, holdfast.AnnotationDryRun} {
		if value, set := annotations[key]; set && value != "true" && value != "false" {
			p.addProblem("metadata.annotations["+key+"]", "%q is neither true nor false", value)
		}
	}
	if annotations[holdfast.AnnotationPlanStrict] == "true" && annotations[holdfast.AnnotationPlan] == "" {
		p.addProblem("metadata.annotations["+holdfast.AnnotationPlanStrict+"]", "needs annotation %s, which names the plan", holdfast.AnnotationPlan)
	}
}

func backupFilters(spec *velerov1.BackupSpec) selection.Spec {
	return selection.Spec{
		IncludedNamespaces: spec.IncludedNamespaces, ExcludedNamespaces: spec.ExcludedNamespaces,
		IncludedResources: spec.IncludedResources, ExcludedResources: spec.ExcludedResources,
		IncludeClusterResources:          spec.IncludeClusterResources,
		IncludedClusterScopedResources:   spec.IncludedClusterScopedResources,
		ExcludedClusterScopedResources:   spec.ExcludedClusterScopedResources,
		IncludedNamespaceScopedResources: spec.IncludedNamespaceScopedResources,
		ExcludedNamespaceScopedResources: spec.ExcludedNamespaceScopedResources,
		LabelSelector:                    spec.LabelSelector, OrLabelSelectors: spec.OrLabelSelectors,
	}
}

func restoreFilters(spec *velerov1.RestoreSpec) selection.Spec {
	return selection.Spec{
		IncludedNamespaces: spec.IncludedNamespaces, ExcludedNamespaces: spec.ExcludedNamespaces,
		IncludedResources: spec.IncludedResources, ExcludedResources: spec.ExcludedResources,
		IncludeClusterResources: spec.IncludeClusterResources,
		LabelSelector:           spec.LabelSelector, OrLabelSelectors: spec.OrLabelSelectors,
	}
}
