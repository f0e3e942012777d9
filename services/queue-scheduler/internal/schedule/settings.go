package schedule

import (
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/validate"
)

// Values of the annotation holdfast.io/concurrency-policy.
const (
	policyForbid = "Forbid"
	policyAllow  = "Allow"
)

// scheduleSettings is what a Schedule requests.
type scheduleSettings struct {
	slots   slotTimes
	offset  time.Duration // from a slot to the start of its Backup, whole seconds
	allow   bool          // start while an earlier Backup waits or runs
	catchUp bool          // make up for slots that passed while it was paused, invalid or different
	pending time.Time     // the reserved slot; zero for none
}

// parseSettings reads a Schedule; the texts are its status.validationErrors (wording of the cron problems:
// Velero 1.18). now decides only whether slots lie ahead.
func parseSettings(s *velerov1.Schedule, now time.Time) (scheduleSettings, []string) {
	var set scheduleSettings
	var problems []string
	note := func(field string, err error) {
		if err != nil {
			problems = append(problems, field+": "+err.Error())
		}
	}
	var err error
	if expression := strings.TrimSpace(s.Spec.Schedule); expression == "" {
		problems = append(problems, "Schedule must be a non-empty valid Cron expression")
	} else {
		set.slots, err = parseSlots(expression, now)
		note("invalid schedule", err)
	}
	if len(s.Name) > validation.LabelValueMaxLength {
		note("metadata.name", fmt.Errorf("must have at most %d characters, for it is a label of the backups", validation.LabelValueMaxLength))
	}
	set.offset, err = parseSpread(s.Annotations[holdfast.AnnotationSpreadWindow], s.UID)
	note(annotationField(holdfast.AnnotationSpreadWindow), err)
	set.allow, err = parsePolicy(s.Annotations[holdfast.AnnotationConcurrencyPolicy])
	note(annotationField(holdfast.AnnotationConcurrencyPolicy), err)
	if text := s.Annotations[holdfast.AnnotationCatchUp]; text != "" {
		set.catchUp, err = strconv.ParseBool(text)
		note(annotationField(holdfast.AnnotationCatchUp), err)
	}
	if text, ok := s.Annotations[holdfast.AnnotationPendingSlot]; ok {
		set.pending, err = time.Parse(time.RFC3339, text)
		note(annotationField(holdfast.AnnotationPendingSlot), err)
	}
	return set, append(problems, templateProblems(&s.Spec.Template)...)
}

func annotationField(key string) string { return "metadata.annotations[" + key + "]" }

// parseSpread returns the share of the window that falls to this UID.
func parseSpread(text string, uid types.UID) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	window, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("%q is not a duration such as 30m", text)
	}
	if window < 0 {
		return 0, errors.New("must not be negative")
	}
	seconds := uint64(window / time.Second)
	if seconds == 0 {
		return 0, nil
	}
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(uid)) // documented never to fail
	return time.Duration(hash.Sum64()%seconds) * time.Second, nil
}

func parsePolicy(text string) (allow bool, err error) {
	switch text {
	case "", policyForbid:
		return false, nil
	case policyAllow:
		return true, nil
	default:
		return false, fmt.Errorf("%q is none of %s and %s", text, policyAllow, policyForbid)
	}
}

// templateProblems finds what no Backup of the template could pass. What depends on the cluster is
// judged for each Backup.
func templateProblems(template *velerov1.BackupSpec) []string {
	var problems []string
	for _, p := range validate.BackupSpec(template) {
		if rest, ok := strings.CutPrefix(p.Field, "spec."); ok {
			p.Field = "spec.template." + rest
		} else {
			p.Field = "spec.template"
		}
		problems = append(problems, p.String())
	}
	return problems
}
