package validate

import (
	"context"
	"encoding/json"
	"errors"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/storedplan"
)

// ApplyPlan gives a Backup that executes a plan the spec of the plan, which lies in the Backup's location or the default one.
// The error means that cluster or bucket could not be asked, or that the location is unavailable for now: nothing is
// decided then.
func (v *Validator) ApplyPlan(ctx context.Context, b *velerov1.Backup) (problems Problems, err error) {
	id, executes := b.Annotations[holdfast.AnnotationPlan]
	if !executes {
		return nil, nil
	}
	field := "metadata.annotations[" + holdfast.AnnotationPlan + "]"
	name, err := v.locationName(ctx, b)
	if err != nil || name == "" {
		return nil, err // a location that is not there is reported by Backup
	}
	loc, err := v.availableLocation(ctx, "spec.storageLocation", name, &problems)
	if loc != nil && isPassingFailure(loc, b.Status.Phase) {
		return nil, problems.Err() // it cannot be queued without its spec
	}
	if err != nil || len(problems) > 0 {
		return problems, err
	}
	ctx, cancel := context.WithTimeout(ctx, listingTime)
	defer cancel()
	store, err := v.Locations.Open(ctx, loc)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	h, err := storedplan.ReadHeader(ctx, store, id)
	switch {
	case errors.Is(err, storedplan.ErrNotFound), errors.Is(err, storedplan.ErrCorrupt):
		problems.addProblem(field, "backup storage location %q: %v", name, err)
		return problems, nil
	case err != nil:
		return nil, err
	case h.Kind != storedplan.KindBackup:
		problems.addProblem(field, "plan %s is of a %s", id, h.Kind)
	case !v.Clock.Now().Before(h.Expires):
		problems.addProblem(field, "plan %s has expired", id)
	}
	var spec velerov1.BackupSpec
	if err := json.Unmarshal(h.Spec, &spec); err != nil {
		problems.addProblem(field, "plan %s: spec: %v", id, err)
		return problems, nil
	}
	given := b.Spec.DeepCopy()
	given.StorageLocation = ""
	if !equality.Semantic.DeepEqual(given, &velerov1.BackupSpec{}) && !equality.Semantic.DeepEqual(&b.Spec, &spec) {
		problems.addProblem("spec", "must name nothing but storageLocation: annotation %s takes the spec from the plan", holdfast.AnnotationPlan)
	}
	b.Spec = spec
	for key, value := range h.Annotations {
		metav1.SetMetaDataAnnotation(&b.ObjectMeta, key, value)
	}
	return problems, nil
}
